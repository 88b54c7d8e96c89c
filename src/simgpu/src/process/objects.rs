//! All objects of this process.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::model::arrays::Arrays;
use crate::model::blocks::Blocks;
use crate::model::borrowed::Borrowed;
use crate::model::captures::Capture;
use crate::model::code::Code;
use crate::model::contexts::{Context, Primary};
use crate::model::executables::Exec;
use crate::model::external::External;
use crate::model::graph_pools::{GraphPool, Hold};
use crate::model::graphs::Graph;
use crate::model::green_contexts::Greens;
use crate::model::managed::Managed;
use crate::model::objects::{Objects, Tag};
use crate::model::pools::Pools;
use crate::model::regions::Regions;
use crate::model::streams::Streams;
use crate::model::user_objects::UserObject;
use crate::model::virtual_memory::Vmm;

/// All objects of this process. One lock protects them, and no thread holds that lock while it waits.
#[derive(Debug)]
pub(crate) struct ProcessObjects {
    /// The contexts.
    pub(crate) contexts: Objects<Context>,
    /// Number of contexts that the process ever made.
    pub(crate) contexts_made: u64,
    /// The primary context of each device that this process sees.
    pub(crate) primaries: Vec<Primary>,
    /// The green contexts.
    pub(crate) greens: Greens,
    /// Pairs of contexts. The first context of a pair may access the memory of the second one.
    pub(crate) peers: HashSet<(u64, u64)>,
    /// The memory regions, by device address.
    pub(crate) regions: Regions,
    /// The blocks that small allocations share.
    pub(crate) blocks: Blocks,
    /// The state of each managed allocation, by address.
    pub(crate) managed: HashMap<u64, Managed>,
    /// The streams and events.
    pub(crate) streams: Streams,
    /// The modules, the libraries and their kernels.
    pub(crate) code: Code,
    /// The arrays.
    pub(crate) arrays: Arrays,
    /// The physical memory with handles, and the reserved addresses.
    pub(crate) vmm: Vmm,
    /// The memory that is lent to other processes, and the memory that is borrowed from them.
    pub(crate) borrowed: Borrowed,
    /// The memory of other interfaces that was imported.
    pub(crate) externals: Objects<External>,
    /// The memory pools.
    pub(crate) pools: Pools,
    /// The graphs.
    pub(crate) graphs: Objects<Graph>,
    /// Number of graph nodes that the process ever made.
    pub(crate) nodes_made: u64,
    /// The executable graphs.
    pub(crate) execs: Objects<Exec>,
    /// The graph pool of each device.
    pub(crate) graph_pools: BTreeMap<usize, GraphPool>,
    /// The memory of graph pools that each executable holds on each device. The executable itself may be destroyed.
    pub(crate) graph_holds: BTreeMap<(u64, usize), Hold>,
    /// The executable that each living graph allocation belongs to, by the address of the allocation.
    pub(crate) graph_blocks: HashMap<u64, u64>,
    /// The captures in progress, by number.
    pub(crate) captures: HashMap<u64, Capture>,
    /// Number of captures that the process ever began.
    pub(crate) captures_made: u64,
    /// The objects of the program that graphs can keep alive.
    pub(crate) user_objects: Objects<UserObject>,
    /// The texture and surface objects. Nothing is ever read through them.
    pub(crate) textures: Objects<()>,
    /// The linkers. Each has the input that the program has added.
    pub(crate) linkers: Objects<Vec<u8>>,
}

impl ProcessObjects {
    pub(crate) fn new(devices: usize) -> Self {
        Self {
            contexts: Objects::new(Tag::Context),
            contexts_made: 0,
            primaries: (0..devices).map(|_| Primary::default()).collect(),
            greens: Greens::new(),
            peers: HashSet::new(),
            regions: Regions::default(),
            blocks: Blocks::default(),
            managed: HashMap::new(),
            streams: Streams::new(),
            code: Code::new(),
            arrays: Arrays::new(),
            vmm: Vmm::default(),
            borrowed: Borrowed::default(),
            externals: Objects::new(Tag::External),
            pools: Pools::new(),
            graphs: Objects::new(Tag::Graph),
            nodes_made: 0,
            execs: Objects::new(Tag::Exec),
            graph_pools: BTreeMap::new(),
            graph_holds: BTreeMap::new(),
            graph_blocks: HashMap::new(),
            captures: HashMap::new(),
            captures_made: 0,
            user_objects: Objects::new(Tag::UserObject),
            textures: Objects::new(Tag::Texture),
            linkers: Objects::new(Tag::Linker),
        }
    }
}
