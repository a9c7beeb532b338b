//! The contract in Rust, generated from `wit/`: nothing else is in here.
//!
//! On other targets than Wasm only the types are of use; `imports` says what stands in for the functions.
#![allow(missing_docs, unsafe_code, unused, unreachable_pub, clippy::all, reason = "generated")]

wit_bindgen::generate!({
    path: "../wit",
    world: "operator",
    // What goes to the host is borrowed: a column is handed over where it lies.
    ownership: Borrowing { duplicate_if_necessary: true },
    pub_export_macro: true,
    export_macro_name: "export_handler",
    default_bindings_module: "tidegate_sdk::bindings",
    generate_all,
});
