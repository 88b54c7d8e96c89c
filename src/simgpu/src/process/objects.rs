//! What does this process have: contexts, memory, streams, code?

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

/// All objects of this process. Behind one lock, which is never held while anything waits.
#[derive(Debug)]
pub(crate) struct ProcessObjects {
    /// Contexts that live.
    pub(crate) contexts: Objects<Context>,
    /// Contexts that were ever made.
    pub(crate) contexts_made: u64,
    /// The primary context of each device that this process sees.
    pub(crate) primaries: Vec<Primary>,
    /// Green contexts.
    pub(crate) greens: Greens,
    /// Pairs of contexts of which the first may reach the second's memory.
    pub(crate) peers: HashSet<(u64, u64)>,
    /// What is behind each address.
    pub(crate) regions: Regions,
    /// Blocks of the device that small memory shares.
    pub(crate) blocks: Blocks,
    /// Managed memory, by where it begins.
    pub(crate) managed: HashMap<u64, Managed>,
    /// Streams and events.
    pub(crate) streams: Streams,
    /// Modules, libraries and their kernels.
    pub(crate) code: Code,
    /// Arrays.
    pub(crate) arrays: Arrays,
    /// Memory and addresses apart from each other.
    pub(crate) vmm: Vmm,
    /// Memory that others use, and theirs that this process uses.
    pub(crate) borrowed: Borrowed,
    /// Memory of other interfaces.
    pub(crate) externals: Objects<External>,
    /// Stream-ordered memory.
    pub(crate) pools: Pools,
    /// Graphs.
    pub(crate) graphs: Objects<Graph>,
    /// Nodes that were ever made.
    pub(crate) nodes_made: u64,
    /// Executables.
    pub(crate) execs: Objects<Exec>,
    /// The graph pool of each device.
    pub(crate) graph_pools: BTreeMap<usize, GraphPool>,
    /// What executables, living or gone, hold of them: by executable and device.
    pub(crate) graph_holds: BTreeMap<(u64, usize), Hold>,
    /// The executable that made each allocation of a graph that lives.
    pub(crate) graph_blocks: HashMap<u64, u64>,
    /// Captures in progress.
    pub(crate) captures: HashMap<u64, Capture>,
    /// Captures that were ever begun.
    pub(crate) captures_made: u64,
    /// Objects of the program that graphs can hold.
    pub(crate) user_objects: Objects<UserObject>,
    /// Texture and surface objects, of which nothing is ever read.
    pub(crate) textures: Objects<()>,
    /// Linkers, with what was added to them.
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
