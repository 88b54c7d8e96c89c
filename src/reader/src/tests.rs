//! Is the interface what its header says, and what was released? Does every answer mean what it should?

mod abi;
mod boundary;
mod reading;
