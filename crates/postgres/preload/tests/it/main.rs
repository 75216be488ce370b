//! Tests of the preloaded library in processes of their own.
//!
//! They are one binary, which links once and runs the tests of all files side by side.

mod children;
mod coverage;
mod lifecycle;
mod named_roots;
mod past_the_shield;
mod redirections;
mod refusals;
mod small_files;
mod starts;
mod support;
mod symbols;
