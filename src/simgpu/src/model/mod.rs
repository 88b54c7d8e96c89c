//! The objects of the driver API, as plain data without behaviour of the driver.

pub(crate) mod arena;
pub(crate) mod arrays;
pub(crate) mod blocks;
pub(crate) mod borrowed;
pub(crate) mod captures;
pub(crate) mod clusters;
pub(crate) mod code;
pub(crate) mod contexts;
pub(crate) mod executables;
pub(crate) mod external;
pub(crate) mod fat_binary;
pub(crate) mod graph_pools;
pub(crate) mod graphs;
pub(crate) mod green_contexts;
pub(crate) mod image;
pub(crate) mod ipc_handles;
pub(crate) mod managed;
pub(crate) mod movement;
pub(crate) mod multicast;
pub(crate) mod objects;
pub(crate) mod pools;
pub(crate) mod regions;
pub(crate) mod streams;
pub(crate) mod user_objects;
pub(crate) mod virtual_memory;
