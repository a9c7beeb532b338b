//! Bindings generated from the operator contract, and nothing else.

wasmtime::component::bindgen!({
    path: "../wit",
    world: "operator",
    // What the host hands over is borrowed, so that a batch is copied once, into the guest.
    ownership: Borrowing { duplicate_if_necessary: true },
    imports: { "tidegate:operator/collector.emit": async | trappable, default: trappable },
    exports: { default: async },
    require_store_data_send: true,
});
