//! Every copy and set of the driver, by exported name, each large enough to wait for the token.

use std::ffi::{CString, c_int};
use std::mem;
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::cuda::Cuda;

const LARGE: u64 = 4 << 20;
const SIDE: u64 = 2048;

pub const REST: Duration = Duration::from_secs(60);

/// All arguments but sizes are zero.
#[rustfmt::skip]
const CALLS: &[(&str, &[u64])] = &[
    ("cuMemcpyHtoD_v2", &[0, 0, LARGE]),
    ("cuMemcpyHtoD_v2_ptds", &[0, 0, LARGE]),
    ("cuMemcpyDtoH_v2", &[0, 0, LARGE]),
    ("cuMemcpyDtoH_v2_ptds", &[0, 0, LARGE]),
    ("cuMemcpyDtoD_v2", &[0, 0, LARGE]),
    ("cuMemcpyDtoD_v2_ptds", &[0, 0, LARGE]),
    ("cuMemcpy", &[0, 0, LARGE]),
    ("cuMemcpy_ptds", &[0, 0, LARGE]),
    ("cuMemcpyPeer", &[0, 0, 0, 0, LARGE]),
    ("cuMemcpyPeer_ptds", &[0, 0, 0, 0, LARGE]),
    ("cuMemcpyHtoDAsync_v2", &[0, 0, LARGE, 0]),
    ("cuMemcpyHtoDAsync_v2_ptsz", &[0, 0, LARGE, 0]),
    ("cuMemcpyDtoHAsync_v2", &[0, 0, LARGE, 0]),
    ("cuMemcpyDtoHAsync_v2_ptsz", &[0, 0, LARGE, 0]),
    ("cuMemcpyDtoDAsync_v2", &[0, 0, LARGE, 0]),
    ("cuMemcpyDtoDAsync_v2_ptsz", &[0, 0, LARGE, 0]),
    ("cuMemcpyAsync", &[0, 0, LARGE, 0]),
    ("cuMemcpyAsync_ptsz", &[0, 0, LARGE, 0]),
    ("cuMemcpyPeerAsync", &[0, 0, 0, 0, LARGE, 0]),
    ("cuMemcpyPeerAsync_ptsz", &[0, 0, 0, 0, LARGE, 0]),
    ("cuMemcpyAtoD_v2", &[0, 0, 0, LARGE]),
    ("cuMemcpyAtoD_v2_ptds", &[0, 0, 0, LARGE]),
    ("cuMemcpyDtoA_v2", &[0, 0, 0, LARGE]),
    ("cuMemcpyDtoA_v2_ptds", &[0, 0, 0, LARGE]),
    ("cuMemcpyHtoA_v2", &[0, 0, 0, LARGE]),
    ("cuMemcpyHtoA_v2_ptds", &[0, 0, 0, LARGE]),
    ("cuMemcpyHtoAAsync_v2", &[0, 0, 0, LARGE, 0]),
    ("cuMemcpyHtoAAsync_v2_ptsz", &[0, 0, 0, LARGE, 0]),
    ("cuMemcpyAtoH_v2", &[0, 0, 0, LARGE]),
    ("cuMemcpyAtoH_v2_ptds", &[0, 0, 0, LARGE]),
    ("cuMemcpyAtoHAsync_v2", &[0, 0, 0, LARGE, 0]),
    ("cuMemcpyAtoHAsync_v2_ptsz", &[0, 0, 0, LARGE, 0]),
    ("cuMemcpyAtoA_v2", &[0, 0, 0, 0, LARGE]),
    ("cuMemcpyAtoA_v2_ptds", &[0, 0, 0, 0, LARGE]),
    ("cuMemcpyWithAttributesAsync", &[0, 0, LARGE, 0, 0]),
    ("cuMemcpyWithAttributesAsync_ptsz", &[0, 0, LARGE, 0, 0]),
    ("cuMemcpy2D_v2", &[0]),
    ("cuMemcpy2D_v2_ptds", &[0]),
    ("cuMemcpy2DUnaligned_v2", &[0]),
    ("cuMemcpy2DUnaligned_v2_ptds", &[0]),
    ("cuMemcpy3D_v2", &[0]),
    ("cuMemcpy3D_v2_ptds", &[0]),
    ("cuMemcpy2DAsync_v2", &[0, 0]),
    ("cuMemcpy2DAsync_v2_ptsz", &[0, 0]),
    ("cuMemcpy3DAsync_v2", &[0, 0]),
    ("cuMemcpy3DAsync_v2_ptsz", &[0, 0]),
    ("cuMemcpyBatchAsync", &[0, 0, 0, 0, 0, 0, 0, 0, 0]),
    ("cuMemcpyBatchAsync_ptsz", &[0, 0, 0, 0, 0, 0, 0, 0, 0]),
    ("cuMemcpyBatchAsync_v2", &[0, 0, 0, 0, 0, 0, 0, 0]),
    ("cuMemcpyBatchAsync_v2_ptsz", &[0, 0, 0, 0, 0, 0, 0, 0]),
    ("cuMemPrefetchAsync", &[0, LARGE, 0, 0]),
    ("cuMemPrefetchAsync_ptsz", &[0, LARGE, 0, 0]),
    ("cuMemPrefetchAsync_v2", &[0, LARGE, 0, 0, 0]),
    ("cuMemPrefetchAsync_v2_ptsz", &[0, LARGE, 0, 0, 0]),
    ("cuMemcpy3DPeer", &[0]),
    ("cuMemcpy3DPeer_ptds", &[0]),
    ("cuMemcpy3DPeerAsync", &[0, 0]),
    ("cuMemcpy3DPeerAsync_ptsz", &[0, 0]),
    ("cuMemcpy3DWithAttributesAsync", &[0, 0, 0]),
    ("cuMemcpy3DWithAttributesAsync_ptsz", &[0, 0, 0]),
    ("cuMemcpy3DBatchAsync", &[0, 0, 0, 0, 0]),
    ("cuMemcpy3DBatchAsync_ptsz", &[0, 0, 0, 0, 0]),
    ("cuMemcpy3DBatchAsync_v2", &[0, 0, 0, 0]),
    ("cuMemcpy3DBatchAsync_v2_ptsz", &[0, 0, 0, 0]),
    ("cuMemPrefetchBatchAsync", &[0, 0, 0, 0, 0, 0, 0, 0]),
    ("cuMemPrefetchBatchAsync_ptsz", &[0, 0, 0, 0, 0, 0, 0, 0]),
    ("cuMemDiscardAndPrefetchBatchAsync", &[0, 0, 0, 0, 0, 0, 0, 0]),
    ("cuMemDiscardAndPrefetchBatchAsync_ptsz", &[0, 0, 0, 0, 0, 0, 0, 0]),
    ("cuMemBatchDecompressAsync", &[0, 0, 0, 0, 0]),
    ("cuMemBatchDecompressAsync_ptsz", &[0, 0, 0, 0, 0]),
    ("cuMemsetD8_v2", &[0, 0, LARGE]),
    ("cuMemsetD8_v2_ptds", &[0, 0, LARGE]),
    ("cuMemsetD8Async", &[0, 0, LARGE, 0]),
    ("cuMemsetD8Async_ptsz", &[0, 0, LARGE, 0]),
    ("cuMemsetD16_v2", &[0, 0, LARGE]),
    ("cuMemsetD16_v2_ptds", &[0, 0, LARGE]),
    ("cuMemsetD16Async", &[0, 0, LARGE, 0]),
    ("cuMemsetD16Async_ptsz", &[0, 0, LARGE, 0]),
    ("cuMemsetD32_v2", &[0, 0, LARGE]),
    ("cuMemsetD32_v2_ptds", &[0, 0, LARGE]),
    ("cuMemsetD32Async", &[0, 0, LARGE, 0]),
    ("cuMemsetD32Async_ptsz", &[0, 0, LARGE, 0]),
    ("cuMemsetD2D8_v2", &[0, 0, 0, SIDE, SIDE]),
    ("cuMemsetD2D8_v2_ptds", &[0, 0, 0, SIDE, SIDE]),
    ("cuMemsetD2D8Async", &[0, 0, 0, SIDE, SIDE, 0]),
    ("cuMemsetD2D8Async_ptsz", &[0, 0, 0, SIDE, SIDE, 0]),
    ("cuMemsetD2D16_v2", &[0, 0, 0, SIDE, SIDE]),
    ("cuMemsetD2D16_v2_ptds", &[0, 0, 0, SIDE, SIDE]),
    ("cuMemsetD2D16Async", &[0, 0, 0, SIDE, SIDE, 0]),
    ("cuMemsetD2D16Async_ptsz", &[0, 0, 0, SIDE, SIDE, 0]),
    ("cuMemsetD2D32_v2", &[0, 0, 0, SIDE, SIDE]),
    ("cuMemsetD2D32_v2_ptds", &[0, 0, 0, SIDE, SIDE]),
    ("cuMemsetD2D32Async", &[0, 0, 0, SIDE, SIDE, 0]),
    ("cuMemsetD2D32Async_ptsz", &[0, 0, 0, SIDE, SIDE, 0]),
];

type Any = unsafe extern "C" fn(u64, u64, u64, u64, u64, u64, u64, u64, u64, u64) -> c_int;

/// Prints name and result; `end` after the last one.
pub fn one(index: usize) -> Result<()> {
    let Some((name, arguments)) = CALLS.get(index) else {
        println!("end");
        return Ok(());
    };
    let cuda = Cuda::load(false)?;
    cuda.on(0)?;
    let text = CString::new(*name)?;
    let mut all = [0; 10];
    all[..arguments.len()].copy_from_slice(arguments);
    let [a, b, c, d, e, f, g, h, i, j] = all;
    // SAFETY: C strings, and the driver's function of this name; only the stand-in is called like this, and
    // it reads no memory.
    let result = unsafe {
        let driver = libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW);
        let found = libc::dlsym(driver, text.as_ptr());
        ensure!(!found.is_null(), "the driver has no {name}");
        mem::transmute::<*mut libc::c_void, Any>(found)(a, b, c, d, e, f, g, h, i, j)
    };
    println!("{name} {result}");
    cuda.synchronise()?;
    std::thread::sleep(REST);
    Ok(())
}
