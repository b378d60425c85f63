//! What no server of etcd does on demand.
