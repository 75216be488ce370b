//! The data owner's side of confidential columns: envelopes, the channel to the zone, the PostgreSQL proxy.
