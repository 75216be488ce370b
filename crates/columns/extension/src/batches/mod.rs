//! Nodes of plans that ask the zone about many rows in one operation (docs/internals/
//! columns-execution.md): a scan with a condition, a filter above other scans and joins, and an
//! aggregation.
//!
//! A finished plan is rewritten: scans with conditions on confidential columns, and aggregations of
//! such columns, are replaced by nodes of this module, if the conditions or every part of the
//! aggregation have a place in a program.
//! Invariant E3: rows, their order and errors are those of the plan before. Must not: know what a
//! function of a program computes.

mod aggregate;
mod aggregate_plan;
mod conditions;
mod expressions;
mod filter;
mod filter_plan;
mod group_order;
mod node_type;
mod nodes;
mod numbers;
mod operands;
mod output;
mod page_rows;
mod parameters;
mod pipeline;
mod rewrite;
pub(crate) mod rows;
mod scan;
mod sending;

/// Registers the nodes, and installs the planner's hook, which calls the one installed before.
pub(crate) fn install() {
    scan::NODE.register();
    aggregate::NODE.register();
    filter::NODE.register();
    rewrite::install();
}
