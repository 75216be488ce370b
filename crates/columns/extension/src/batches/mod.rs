//! Nodes of plans that ask the zone about many rows in one operation (docs/internals/
//! columns-execution.md): a scan with a condition, and an aggregation.
//!
//! A finished plan is rewritten: a sequential scan and an aggregation that concern confidential
//! columns are replaced by nodes of this module, if every part of theirs has a place in a program.
//! Invariant E3: rows, their order and errors are those of the plan before. Must not: know what a
//! function of a program computes.

mod aggregate;
mod aggregate_plan;
mod expressions;
mod group_order;
mod nodes;
mod numbers;
mod operands;
mod output;
mod rewrite;
pub(crate) mod rows;
mod scan;
mod sending;

/// Registers the nodes, and installs the planner's hook, which calls the one installed before.
pub(crate) fn install() {
    scan::register();
    aggregate::register();
    rewrite::install();
}
