//! Tests the authority that kubelets before 1.26 send: the path of the socket.

use super::node::Node;
use crate::raw::call;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kubelet_whose_authority_is_a_path_is_answered() {
    let node = Node::start(1, false).await;
    let method = "/v1beta1.DevicePlugin/GetDevicePluginOptions";
    // pre_start_required
    assert_eq!(call(&node.socket(), method, &[], crate::PATIENCE), [8, 1]);
}
