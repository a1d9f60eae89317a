//! Watches a descriptor on the event loop of an environment. Owns the libuv handle, and the only
//! unsafe code of the binding; does not know what the descriptor is for.
#![allow(
    unsafe_code,
    reason = "libuv and some of Node-API are there in C only; each call says why it is sound"
)]

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_int, c_void};
use std::mem;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::ptr;
use std::rc::Rc;
use std::sync::OnceLock;
use std::time::Duration;

use napi::bindgen_prelude::{Function, FunctionRef, JsValue as _};
use napi::{Env, sys};

/// A descriptor that can be watched repeatedly. Does not keep the process alive.
pub(crate) struct DescriptorWatch(Rc<Handle>);

struct Handle {
    uv: &'static Uv,
    env: sys::napi_env,
    event_loop: *mut c_void,
    /// The memory of a `uv_poll_t`, in words for their alignment.
    memory: Box<[Cell<u64>]>,
    is_on: Cell<bool>,
    /// Open until libuv does not use it any more.
    descriptor: OwnedFd,
    look: Box<dyn Fn() -> (bool, bool)>,
    /// Removed when the environment ends.
    call: RefCell<Option<FunctionRef<(), ()>>>,
}

impl DescriptorWatch {
    /// Watches a copy of `descriptor`, which must be open. When it is readable, `look` is called,
    /// which tells whether to call `call` then, and whether to continue. `None` where that is not
    /// possible.
    pub(crate) fn new(
        env: Env,
        descriptor: RawFd,
        call: &Function<'_, (), ()>,
        look: impl Fn() -> (bool, bool) + 'static,
    ) -> Option<Self> {
        let uv = Uv::find()?;
        // SAFETY: the caller guarantees that it is open, and it is borrowed for no longer than the
        // copy takes.
        let descriptor = unsafe { BorrowedFd::borrow_raw(descriptor) }.try_clone_to_owned().ok()?;
        // SAFETY: asks for a size.
        let size = unsafe { (uv.handle_size)(UV_POLL) };
        let mut event_loop = ptr::null_mut();
        // SAFETY: on the environment's thread.
        let status = unsafe { sys::napi_get_uv_event_loop(env.raw(), &raw mut event_loop) };
        if status != sys::Status::napi_ok {
            return None;
        }
        let handle = Rc::new(Handle {
            uv,
            env: env.raw(),
            event_loop: event_loop.cast(),
            memory: vec![Cell::new(0); size.div_ceil(size_of::<u64>())].into(),
            is_on: Cell::new(false),
            descriptor,
            look: Box::new(look),
            call: RefCell::new(Some(call.create_ref().ok()?)),
        });
        handle.open().then(|| Self(handle))
    }

    pub(crate) fn start(&self) {
        self.0.set_on(true);
    }

    pub(crate) fn stop(&self) {
        self.0.set_on(false);
    }

    /// How long the event loop has been idle so far, by libuv's count; zero where it does not tell.
    pub(crate) fn idle_time(&self) -> Duration {
        let handle = &self.0;
        match handle.uv.metrics_idle_time {
            // SAFETY: the loop outlives the environment, which has not ended, and this is its thread.
            Some(told) if !handle.is_closed() => {
                Duration::from_nanos(unsafe { told(handle.event_loop) })
            }
            _ => Duration::ZERO,
        }
    }
}

impl Handle {
    /// Registers the handle with libuv, until the environment ends.
    fn open(self: &Rc<Self>) -> bool {
        let mut hook = ptr::null_mut();
        let place = self.place();
        // SAFETY: on the environment's thread, with its own loop; the memory is as large as libuv asked and
        // stays where it is until `forget`, which libuv calls last. The data is a counted reference of
        // libuv's own, which `forget` takes back; where there is no hook to close the handle in the end, it
        // stays for ever, as the memory must.
        unsafe {
            if (self.uv.poll_init)(self.event_loop, place, self.descriptor.as_raw_fd()) != 0 {
                return false;
            }
            (self.uv.unref)(place);
            (self.uv.handle_set_data)(place, Rc::into_raw(Rc::clone(self)).cast_mut().cast());
            sys::napi_add_async_cleanup_hook(self.env, Some(close), place, &raw mut hook)
                == sys::Status::napi_ok
        }
    }

    fn set_on(&self, is_on: bool) {
        if self.is_closed() || self.is_on.replace(is_on) == is_on {
            return;
        }
        let place = self.place();
        // SAFETY: libuv knows the handle, and this is its loop's thread: `Handle` cannot be sent.
        let status = unsafe {
            if is_on {
                (self.uv.poll_start)(place, UV_READABLE, on_readable)
            } else {
                (self.uv.poll_stop)(place)
            }
        };
        self.is_on.set(is_on && status == 0);
    }

    /// Calls into JavaScript, which has nothing else to do now.
    fn call(&self) {
        let env = Env::from_raw(self.env);
        let (mut scope, mut global, mut result) =
            (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        // SAFETY: from the event loop, on the environment's thread, which has not ended (its hook takes
        // `call` away); every value lives in the scope, which is closed here.
        unsafe {
            if sys::napi_open_handle_scope(self.env, &raw mut scope) != sys::Status::napi_ok {
                return;
            }
            let callee = self.call.borrow().as_ref().map(|call| call.borrow_back(&env));
            if let Some(Ok(callee)) = callee
                && sys::napi_get_global(self.env, &raw mut global) == sys::Status::napi_ok
            {
                let status = sys::napi_make_callback(
                    self.env,
                    ptr::null_mut(),
                    global,
                    callee.raw(),
                    0,
                    ptr::null(),
                    &raw mut result,
                );
                self.rethrow(status);
            }
            sys::napi_close_handle_scope(self.env, scope);
        }
    }

    /// Rethrows what JavaScript threw: no caller could catch it.
    ///
    /// # Safety
    /// As for every call of Node-API, in an open scope.
    unsafe fn rethrow(&self, status: sys::napi_status) {
        let mut thrown = ptr::null_mut();
        // SAFETY: the caller's.
        unsafe {
            if status == sys::Status::napi_pending_exception
                && sys::napi_get_and_clear_last_exception(self.env, &raw mut thrown)
                    == sys::Status::napi_ok
            {
                sys::napi_fatal_exception(self.env, thrown);
            }
        }
    }

    fn is_closed(&self) -> bool {
        self.call.borrow().is_none()
    }

    fn place(&self) -> *mut c_void {
        self.memory.as_ptr().cast_mut().cast()
    }
}

/// The handle that libuv knows under this address.
///
/// # Safety
/// libuv must still know it.
unsafe fn handle_at(place: *mut c_void) -> Rc<Handle> {
    let uv = Uv::find().expect("libuv is there where it calls from");
    // SAFETY: its data is the reference that `open` made; this is one more.
    unsafe {
        let handle: *const Handle = (uv.handle_get_data)(place).cast();
        Rc::increment_strong_count(handle);
        Rc::from_raw(handle)
    }
}

unsafe extern "C" fn on_readable(place: *mut c_void, status: c_int, _events: c_int) {
    // SAFETY: libuv calls with a handle of ours that is not closed.
    let handle = unsafe { handle_at(place) };
    let (calls, goes_on) = if status < 0 { (false, false) } else { (handle.look)() };
    if !goes_on {
        handle.set_on(false);
    }
    if calls {
        handle.call();
    }
}

/// The environment ends.
unsafe extern "C" fn close(hook: sys::napi_async_cleanup_hook_handle, place: *mut c_void) {
    // SAFETY: the hook is called once, on the environment's thread, before `forget`.
    let handle = unsafe { handle_at(place) };
    handle.set_on(false);
    handle.call.replace(None);
    // SAFETY: as before; libuv has the handle closed once, and calls `forget` in the end, which finds
    // the hook in the place of what it knew.
    unsafe {
        let closing = Box::new(Closing { hook, handle: (handle.uv.handle_get_data)(place).cast() });
        (handle.uv.handle_set_data)(place, Box::into_raw(closing).cast());
        (handle.uv.close)(place, forget);
    }
}

/// The work that remains when libuv does not use a handle any more.
struct Closing {
    hook: sys::napi_async_cleanup_hook_handle,
    handle: *const Handle,
}

unsafe extern "C" fn forget(place: *mut c_void) {
    let uv = Uv::find().expect("libuv is there where it calls from");
    // SAFETY: libuv is done with the handle; the data is what `close` has put there, and the reference in
    // it is the one that `open` made.
    unsafe {
        let closing: Box<Closing> = Box::from_raw((uv.handle_get_data)(place).cast());
        drop(Rc::from_raw(closing.handle));
        sys::napi_remove_async_cleanup_hook(closing.hook);
    }
}

/// The functions of libuv that are used. It is a part of Node's executable, and they have not
/// changed since the first version that a supported Node has.
struct Uv {
    poll_init: unsafe extern "C" fn(*mut c_void, *mut c_void, c_int) -> c_int,
    poll_start: unsafe extern "C" fn(*mut c_void, c_int, OnReadable) -> c_int,
    poll_stop: unsafe extern "C" fn(*mut c_void) -> c_int,
    close: unsafe extern "C" fn(*mut c_void, unsafe extern "C" fn(*mut c_void)),
    unref: unsafe extern "C" fn(*mut c_void),
    handle_size: unsafe extern "C" fn(c_int) -> usize,
    handle_set_data: unsafe extern "C" fn(*mut c_void, *mut c_void),
    handle_get_data: unsafe extern "C" fn(*const c_void) -> *mut c_void,
    metrics_idle_time: Option<unsafe extern "C" fn(*mut c_void) -> u64>,
}

type OnReadable = unsafe extern "C" fn(*mut c_void, c_int, c_int);

impl Uv {
    /// `None` if this process has no visible libuv.
    fn find() -> Option<&'static Self> {
        static FOUND: OnceLock<Option<Uv>> = OnceLock::new();
        // SAFETY: each symbol has the type that libuv's header gives it.
        let look = || unsafe {
            Some(Uv {
                poll_init: symbol(c"uv_poll_init")?,
                poll_start: symbol(c"uv_poll_start")?,
                poll_stop: symbol(c"uv_poll_stop")?,
                close: symbol(c"uv_close")?,
                unref: symbol(c"uv_unref")?,
                handle_size: symbol(c"uv_handle_size")?,
                handle_set_data: symbol(c"uv_handle_set_data")?,
                handle_get_data: symbol(c"uv_handle_get_data")?,
                metrics_idle_time: symbol(c"uv_metrics_idle_time"),
            })
        };
        FOUND.get_or_init(look).as_ref()
    }
}

/// The function of that name.
///
/// # Safety
/// If there is one, it is of type `F`.
unsafe fn symbol<F: Copy>(name: &CStr) -> Option<F> {
    // SAFETY: a name with its zero, looked up among what the process has loaded; a pointer to a function is
    // one to anything.
    unsafe {
        let found = libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr());
        (!found.is_null()).then(|| mem::transmute_copy(&found))
    }
}

/// `UV_POLL` of `uv_handle_type`.
const UV_POLL: c_int = 8;
const UV_READABLE: c_int = 1;
