//! Results of driver calls, and the statuses that they return.

use gpuslice_driver::types::Status;

/// The result of a call: nothing, or the status of its failure.
pub(crate) type Outcome = Result<(), Status>;

/// Statuses of the driver API that `gpuslice_driver` does not name.
pub(crate) mod statuses {
    use super::Status;

    pub(crate) const DEINITIALIZED: Status = 4;
    pub(crate) const INVALID_DEVICE: Status = 101;
    pub(crate) const INVALID_IMAGE: Status = 200;
    pub(crate) const MAP_FAILED: Status = 205;
    pub(crate) const PRIMARY_CONTEXT_ACTIVE: Status = 708;
    pub(crate) const CONTEXT_IS_DESTROYED: Status = 709;
    pub(crate) const FILE_NOT_FOUND: Status = 301;
    pub(crate) const INVALID_HANDLE: Status = 400;
    pub(crate) const ILLEGAL_STATE: Status = 401;
    pub(crate) const NOT_FOUND: Status = 500;
    pub(crate) const NOT_READY: Status = 600;
    pub(crate) const PEER_ACCESS_ALREADY_ENABLED: Status = 704;
    pub(crate) const PEER_ACCESS_NOT_ENABLED: Status = 705;
    pub(crate) const HOST_MEMORY_ALREADY_REGISTERED: Status = 712;
    pub(crate) const HOST_MEMORY_NOT_REGISTERED: Status = 713;
    pub(crate) const STREAM_CAPTURE_UNSUPPORTED: Status = 900;
    pub(crate) const STREAM_CAPTURE_INVALIDATED: Status = 901;
    pub(crate) const STREAM_CAPTURE_MERGE: Status = 902;
    pub(crate) const STREAM_CAPTURE_UNMATCHED: Status = 903;
    pub(crate) const STREAM_CAPTURE_UNJOINED: Status = 904;
    pub(crate) const STREAM_CAPTURE_ISOLATION: Status = 905;
    pub(crate) const STREAM_CAPTURE_IMPLICIT: Status = 906;
    pub(crate) const CAPTURED_EVENT: Status = 907;
    pub(crate) const STREAM_CAPTURE_WRONG_THREAD: Status = 908;
    pub(crate) const GRAPH_EXEC_UPDATE_FAILURE: Status = 910;
    pub(crate) const INVALID_CLUSTER_SIZE: Status = 912;
    pub(crate) const INVALID_RESOURCE_TYPE: Status = 914;
    pub(crate) const UNKNOWN: Status = 999;
}
