//! Tests of the interface for C: its shape, and its answers.

mod abi;
mod boundary;
mod reading;
