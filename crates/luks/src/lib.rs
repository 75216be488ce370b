//! LUKS2 in user space: reads and checks headers, opens key slots, reads and writes sectors.
//!
//! Must not: write a header; believe a header that is not understood whole.
