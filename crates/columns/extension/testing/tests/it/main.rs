//! Tests of the extension in a PostgreSQL server, with the zone and the proxy.
//!
//! They are one binary, which links once and runs the tests of all files side by side.

mod alike;
mod answer_memo;
mod catalogs;
mod connections;
mod convert;
mod crashes;
mod defaults;
mod definitions;
mod documents;
mod dumps;
mod equality;
mod faults;
mod full_disk;
mod histories;
mod kills;
mod ledgers;
mod lineages;
mod log_end;
mod logical;
mod lost_records;
mod machine;
mod operator;
mod ordinary;
mod owner_commands;
mod plans;
mod random;
mod reclaim;
mod recovery;
mod relations;
mod replay;
mod results;
mod retired;
mod sets;
mod slot;
mod statements;
mod sweeper;
mod sysbench;
mod thief;
mod times;
mod tpcc;
mod tpch;
mod uuids;
mod whole;
