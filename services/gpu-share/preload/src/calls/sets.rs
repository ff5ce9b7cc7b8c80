//! Memsets: large ones wait for the token, small ones pass. The program does not wait for them.

use std::ptr;

use super::copies::copied;
use crate::symbols::{Address, Handle};

ours! { crate::driver::DRIVER;
    cuMemsetD8_v2(to: Address, value: u8, count: usize) |real| copied(count, ptr::null_mut(), false, real);
    cuMemsetD8_v2_ptds(to: Address, value: u8, count: usize) |real| copied(count, ptr::null_mut(), true, real);
    cuMemsetD8Async(to: Address, value: u8, count: usize, stream: Handle) |real| copied(count, stream, false, real);
    cuMemsetD8Async_ptsz(to: Address, value: u8, count: usize, stream: Handle) |real| copied(count, stream, true, real);
    cuMemsetD16_v2(to: Address, value: u16, count: usize) |real| copied(count.saturating_mul(2), ptr::null_mut(), false, real);
    cuMemsetD16_v2_ptds(to: Address, value: u16, count: usize) |real| copied(count.saturating_mul(2), ptr::null_mut(), true, real);
    cuMemsetD16Async(to: Address, value: u16, count: usize, stream: Handle) |real| copied(count.saturating_mul(2), stream, false, real);
    cuMemsetD16Async_ptsz(to: Address, value: u16, count: usize, stream: Handle) |real| copied(count.saturating_mul(2), stream, true, real);
    cuMemsetD32_v2(to: Address, value: u32, count: usize) |real| copied(count.saturating_mul(4), ptr::null_mut(), false, real);
    cuMemsetD32_v2_ptds(to: Address, value: u32, count: usize) |real| copied(count.saturating_mul(4), ptr::null_mut(), true, real);
    cuMemsetD32Async(to: Address, value: u32, count: usize, stream: Handle) |real| copied(count.saturating_mul(4), stream, false, real);
    cuMemsetD32Async_ptsz(to: Address, value: u32, count: usize, stream: Handle) |real| copied(count.saturating_mul(4), stream, true, real);
    cuMemsetD2D8_v2(to: Address, pitch: usize, value: u8, width: usize, height: usize) |real| copied(width.saturating_mul(height), ptr::null_mut(), false, real);
    cuMemsetD2D8_v2_ptds(to: Address, pitch: usize, value: u8, width: usize, height: usize) |real| copied(width.saturating_mul(height), ptr::null_mut(), true, real);
    cuMemsetD2D8Async(to: Address, pitch: usize, value: u8, width: usize, height: usize, stream: Handle) |real| copied(width.saturating_mul(height), stream, false, real);
    cuMemsetD2D8Async_ptsz(to: Address, pitch: usize, value: u8, width: usize, height: usize, stream: Handle) |real| copied(width.saturating_mul(height), stream, true, real);
    cuMemsetD2D16_v2(to: Address, pitch: usize, value: u16, width: usize, height: usize) |real| copied(width.saturating_mul(height).saturating_mul(2), ptr::null_mut(), false, real);
    cuMemsetD2D16_v2_ptds(to: Address, pitch: usize, value: u16, width: usize, height: usize) |real| copied(width.saturating_mul(height).saturating_mul(2), ptr::null_mut(), true, real);
    cuMemsetD2D16Async(to: Address, pitch: usize, value: u16, width: usize, height: usize, stream: Handle) |real| copied(width.saturating_mul(height).saturating_mul(2), stream, false, real);
    cuMemsetD2D16Async_ptsz(to: Address, pitch: usize, value: u16, width: usize, height: usize, stream: Handle) |real| copied(width.saturating_mul(height).saturating_mul(2), stream, true, real);
    cuMemsetD2D32_v2(to: Address, pitch: usize, value: u32, width: usize, height: usize) |real| copied(width.saturating_mul(height).saturating_mul(4), ptr::null_mut(), false, real);
    cuMemsetD2D32_v2_ptds(to: Address, pitch: usize, value: u32, width: usize, height: usize) |real| copied(width.saturating_mul(height).saturating_mul(4), ptr::null_mut(), true, real);
    cuMemsetD2D32Async(to: Address, pitch: usize, value: u32, width: usize, height: usize, stream: Handle) |real| copied(width.saturating_mul(height).saturating_mul(4), stream, false, real);
    cuMemsetD2D32Async_ptsz(to: Address, pitch: usize, value: u32, width: usize, height: usize, stream: Handle) |real| copied(width.saturating_mul(height).saturating_mul(4), stream, true, real);
}
