//! Tests that the boundary stays within the caller's memory. They run in miri too, which checks each byte.

use crate::boundary::{Plain as _, answer, fill, reference, text, write};
use crate::figures::{DeviceFigures, ProcessFigures};
use crate::gpuslice_error_text;
use crate::status::{NAMES, Status};
use core::ffi::CStr;
use core::mem::size_of;
use core::ptr;
use gpuslice_region::ProcessView;

fn process() -> ProcessFigures {
    let process = ProcessView {
        slot: 3,
        pid: 4,
        start: 5,
        pid_namespace: 6,
        held: vec![1, 7],
        quota_denials: vec![1, 8],
        time: Vec::new(),
        spilled: vec![1, 9],
        contexts: vec![1, 6],
    };
    ProcessFigures::of(1, &process)
}

#[test]
fn a_structure_of_any_size_and_place_is_filled_to_its_end_and_no_further() {
    let whole = size_of::<ProcessFigures>();
    for size in [whole, whole + 1, whole + 8, whole + 4096] {
        for start in [0, 1, 7] {
            let mut bytes = vec![0xaa_u8; start + size + 1];
            // SAFETY: `fill` needs room for `size` bytes, which lie after `start`.
            assert_eq!(unsafe { fill(bytes[start..].as_mut_ptr(), size, &process()) }, Ok(()));
            let end = start + size;
            assert_eq!((bytes[end], &bytes[start..start + 8]), (0xaa, &5_u64.to_ne_bytes()[..]));
            assert!(bytes[..start].iter().all(|byte| *byte == 0xaa));
            assert!(bytes[start + whole..end].iter().all(|byte| *byte == 0));
            let held = &bytes[start + 16..start + 40];
            assert_eq!(held, [7_u64, 8, 9].map(u64::to_ne_bytes).concat());
            assert_eq!(bytes[start + whole - 8..start + whole], 6_u64.to_ne_bytes());
        }
    }
    // A caller built with the first header gets the fields of that header.
    let first = ProcessFigures::FIRST_SIZE;
    let mut bytes = vec![0xaa_u8; whole];
    // SAFETY: `fill` needs room for `first` bytes, and `bytes` is longer.
    assert_eq!(unsafe { fill(bytes.as_mut_ptr(), first, &process()) }, Ok(()));
    assert_eq!((&bytes[first - 4..first], &bytes[first..]), (&4_u32.to_ne_bytes()[..], &[0xaa; 8][..]));
    for size in [0, 1, first - 1] {
        // SAFETY: `fill` writes nothing if `size` is too small.
        assert_eq!(unsafe { fill(ptr::dangling_mut(), size, &process()) }, Err(Status::Argument));
    }
    // SAFETY: `fill` allows null.
    assert_eq!(unsafe { fill(ptr::null_mut(), 4096, &process()) }, Err(Status::Argument));
    assert_eq!(size_of::<DeviceFigures>() % 8, 0);
}

#[test]
fn a_device_without_figures_of_a_process_has_zeroes() {
    let process = ProcessView {
        slot: 0,
        pid: 0,
        start: 0,
        pid_namespace: 0,
        held: Vec::new(),
        quota_denials: Vec::new(),
        time: Vec::new(),
        spilled: Vec::new(),
        contexts: Vec::new(),
    };
    let figures = ProcessFigures::of(usize::MAX, &process);
    assert_eq!((figures.held, figures.refused, figures.spilled, figures.used_ns), (0, 0, 0, 0));
    assert_eq!(figures.held_by_contexts, 0);
}

#[test]
fn numbers_are_written_to_aligned_and_unaligned_places() {
    let mut bytes = [0xaa_u8; 10];
    // SAFETY: `write` needs room for eight bytes, which lie after the first.
    unsafe { write(bytes[1..].as_mut_ptr().cast::<u64>(), 0) };
    assert_eq!(bytes, [0xaa, 0, 0, 0, 0, 0, 0, 0, 0, 0xaa]);
    // SAFETY: `write` allows null.
    unsafe { write(ptr::null_mut::<u64>(), 1) };
}

#[test]
fn null_pointers_are_refused() {
    // SAFETY: `reference` allows null.
    assert_eq!(unsafe { reference(ptr::null::<u32>()) }, Err(Status::Argument));
    let process = process();
    // SAFETY: `process` lives until the end of the test, and no thread changes it.
    assert_eq!(unsafe { reference(&raw const process.pid) }.copied(), Ok(4));
    // SAFETY: `text` allows null.
    assert_eq!(unsafe { text(ptr::null()) }, Err(Status::Argument));
    // SAFETY: the literal ends with a zero and lives for ever.
    assert_eq!(unsafe { text(c"".as_ptr()) }, Err(Status::Argument));
    // SAFETY: the literal ends with a zero and lives for ever.
    assert_eq!(unsafe { text(c"r\xffd".as_ptr()) }.unwrap().len(), 3);
}

#[test]
fn every_status_has_its_own_text_and_unknown_numbers_have_one() {
    // SAFETY: `from_ptr` needs a string that ends with a zero; `gpuslice_error_text` returns a literal.
    let of = |number| unsafe { CStr::from_ptr(gpuslice_error_text(number)) }.to_str().unwrap();
    let texts: std::collections::BTreeSet<&str> = NAMES.iter().map(|(_, number)| of(*number)).collect();
    assert_eq!(texts.len(), 16);
    for strange in [-1, 16, i32::MAX] {
        assert!(!of(strange).is_empty() && !texts.contains(of(strange)));
    }
}

#[test]
fn a_panic_is_a_status() {
    assert_eq!(answer(|| panic!("on purpose")), Status::Internal.number());
    assert_eq!(answer(|| Err(Status::Room)), Status::Room.number());
    assert_eq!(answer(|| Ok(())), Status::OK);
}
