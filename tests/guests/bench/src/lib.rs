//! Nothing is shared by the operators that are measured: each is one file in `examples/`.
