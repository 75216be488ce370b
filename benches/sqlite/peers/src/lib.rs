//! Nothing: the package names two others whose C sources the comparison compiles. Must not: be
//! built into anything.
