//! All integration tests of this crate in one binary, which is linked once: a module for each file.

mod archive;
mod classes;
mod cluster;
mod common;
mod diff;
mod dynamoml;
mod explain;
mod grants;
mod ledger;
mod limits;
mod nights;
mod places;
mod plan;
mod properties;
mod recheck;
mod report;
mod scenarios;
mod seen;
mod serving;
mod slices;
mod starts;
mod table2;
mod tenants;
mod torture;
mod tromino;
mod whatif;
