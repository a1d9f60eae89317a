//! Sets the linker up for an addon.

fn main() {
    napi_build::setup();
}
