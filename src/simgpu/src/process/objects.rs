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

/// All objects of this process, behind one lock. No thread holds the lock while it waits.
#[derive(Debug)]
pub(crate) struct ProcessObjects {
    /// Contexts.
    pub(crate) contexts: Objects<Context>,
    /// Number of contexts that were ever made.
    pub(crate) contexts_made: u64,
    /// The primary context of each device that this process sees.
    pub(crate) primaries: Vec<Primary>,
    /// Green contexts.
    pub(crate) greens: Greens,
    /// Pairs of contexts: the first may access the memory of the second.
    pub(crate) peers: HashSet<(u64, u64)>,
    /// Memory by device address.
    pub(crate) regions: Regions,
    /// Blocks that small allocations share.
    pub(crate) blocks: Blocks,
    /// Managed memory, by address.
    pub(crate) managed: HashMap<u64, Managed>,
    /// Streams and events.
    pub(crate) streams: Streams,
    /// Modules, libraries and their kernels.
    pub(crate) code: Code,
    /// Arrays.
    pub(crate) arrays: Arrays,
    /// Physical memory with handles, and reserved addresses.
    pub(crate) vmm: Vmm,
    /// Memory lent to other processes, and borrowed from them.
    pub(crate) borrowed: Borrowed,
    /// Imported memory of other interfaces.
    pub(crate) externals: Objects<External>,
    /// Memory pools.
    pub(crate) pools: Pools,
    /// Graphs.
    pub(crate) graphs: Objects<Graph>,
    /// Number of nodes that were ever made.
    pub(crate) nodes_made: u64,
    /// Executable graphs.
    pub(crate) execs: Objects<Exec>,
    /// The graph pool of each device.
    pub(crate) graph_pools: BTreeMap<usize, GraphPool>,
    /// Memory that executables hold of the graph pools, by executable and device. The executable may be destroyed.
    pub(crate) graph_holds: BTreeMap<(u64, usize), Hold>,
    /// The executable of each living allocation of a graph, by address.
    pub(crate) graph_blocks: HashMap<u64, u64>,
    /// Captures in progress, by number.
    pub(crate) captures: HashMap<u64, Capture>,
    /// Number of captures that were ever begun.
    pub(crate) captures_made: u64,
    /// Objects of the program that graphs can keep alive.
    pub(crate) user_objects: Objects<UserObject>,
    /// Texture and surface objects. Nothing is ever read through them.
    pub(crate) textures: Objects<()>,
    /// Linkers, with their input.
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
