//! A sort of node: what PostgreSQL calls for it, and what a node of it keeps while it is executed.
//!
//! Must not: know a node.

use std::ffi::{CStr, c_int, c_void};

use pg_sys::{
    CustomExecMethods, CustomScan, CustomScanMethods, CustomScanState, EState, MemoryContext, Node,
    TupleTableSlot,
};
use pgrx::pg_sys;

use crate::call::call_postgres;

/// A sort of node. Never changes.
pub(super) struct NodeType {
    scan: CustomScanMethods,
    exec: CustomExecMethods,
}

// SAFETY: function pointers and constant strings.
unsafe impl Sync for NodeType {}

/// What PostgreSQL calls for a node.
pub(super) struct Callbacks {
    /// Makes the node's state, by [`NodeType::new_state`].
    pub(super) create: unsafe extern "C-unwind" fn(*mut CustomScan) -> *mut Node,
    pub(super) begin: unsafe extern "C-unwind" fn(*mut CustomScanState, *mut EState, c_int),
    pub(super) next: unsafe extern "C-unwind" fn(*mut CustomScanState) -> *mut TupleTableSlot,
    pub(super) end: unsafe extern "C-unwind" fn(*mut CustomScanState),
    pub(super) rescan: unsafe extern "C-unwind" fn(*mut CustomScanState),
    pub(super) explain: unsafe extern "C-unwind" fn(
        *mut CustomScanState,
        *mut pg_sys::List,
        *mut pg_sys::ExplainState,
    ),
}

impl NodeType {
    /// Nodes of this name, which are neither marked nor executed by workers.
    pub(super) const fn new(name: &'static CStr, callbacks: Callbacks) -> Self {
        Self {
            scan: CustomScanMethods {
                CustomName: name.as_ptr(),
                CreateCustomScanState: Some(callbacks.create),
            },
            exec: CustomExecMethods {
                CustomName: name.as_ptr(),
                BeginCustomScan: Some(callbacks.begin),
                ExecCustomScan: Some(callbacks.next),
                EndCustomScan: Some(callbacks.end),
                ReScanCustomScan: Some(callbacks.rescan),
                MarkPosCustomScan: None,
                RestrPosCustomScan: None,
                EstimateDSMCustomScan: None,
                InitializeDSMCustomScan: None,
                ReInitializeDSMCustomScan: None,
                InitializeWorkerCustomScan: None,
                ShutdownCustomScan: None,
                ExplainCustomScan: Some(callbacks.explain),
            },
        }
    }

    /// Registers the sort of node.
    pub(super) fn register(&'static self) {
        // SAFETY: a static structure.
        unsafe { pg_sys::RegisterCustomScanMethods(self.methods()) };
    }

    /// The functions of such a node, for a plan.
    pub(super) const fn methods(&'static self) -> *const CustomScanMethods {
        &raw const self.scan
    }

    /// The state of a node whose module will [`keep`] a `T`.
    pub(super) fn new_state<T>(&'static self) -> *mut Node {
        // SAFETY: memory of the query, zeros; the tag and the functions are set before PostgreSQL
        // sees it.
        unsafe {
            let state: *mut State<T> = pg_sys::palloc0(size_of::<State<T>>()).cast();
            (*state).node.ss.ps.type_ = pg_sys::NodeTag::T_CustomScanState;
            (*state).node.methods = &raw const self.exec;
            state.cast()
        }
    }
}

/// A node while it is executed.
#[repr(C)]
struct State<T> {
    /// First, because PostgreSQL knows only this part.
    node: CustomScanState,
    /// What the node's module keeps.
    kept: *mut T,
}

/// Keeps what a node's module needs until the query is over.
///
/// # Safety
///
/// A node that [`NodeType::new_state`] has made for a `T`.
pub(super) unsafe fn keep<T>(node: *mut CustomScanState, estate: *mut EState, value: T) {
    // SAFETY: the caller's promise.
    unsafe { (*node.cast::<State<T>>()).kept = keep_until_freed((*estate).es_query_cxt, value) };
}

/// What a node's module has kept.
///
/// # Safety
///
/// A node for which [`keep`] was called with a `T`; no other reference to it.
pub(super) unsafe fn kept<'a, T>(node: *mut CustomScanState) -> &'a mut T {
    // SAFETY: the caller's promise.
    unsafe { &mut *(*node.cast::<State<T>>()).kept }
}

/// Keeps a value until a memory context is freed or reset, however that comes about; returns where
/// it is. So it is dropped when a statement ends with an error, too.
fn keep_until_freed<T>(context: MemoryContext, value: T) -> *mut T {
    /// Drops the value.
    extern "C-unwind" fn free<T>(value: *mut c_void) {
        // SAFETY: made from a box below, and called once.
        crate::call::guarded(|| drop(unsafe { Box::from_raw(value.cast::<T>()) }));
    }
    let value = Box::into_raw(Box::new(value));
    // SAFETY: the callback lives in the context, as MemoryContextRegisterResetCallback wants it.
    unsafe {
        let size = size_of::<pg_sys::MemoryContextCallback>();
        let callback: *mut pg_sys::MemoryContextCallback =
            call_postgres(|| pg_sys::MemoryContextAlloc(context, size)).cast();
        callback.write(pg_sys::MemoryContextCallback {
            func: Some(free::<T>),
            arg: value.cast(),
            next: std::ptr::null_mut(),
        });
        pg_sys::MemoryContextRegisterResetCallback(context, callback);
    }
    value
}
