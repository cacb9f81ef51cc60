//! Cloud vendors, their servers and prices.
//!
//! In:  firmware files and metadata services (`cloud`); the embedded price list and the Keeper (`catalog`).
//! Out: the cloud of this machine; servers that fit a query; prices.

pub mod catalog;
pub mod cloud;

/// Ids of the supported vendors, as in `vendor_id` of a server. `cloud` recognises machines of these vendors, and
/// `catalog` filters by vendor.
pub const VENDOR_IDS: [&str; 14] = [
    "aws",
    "gcp",
    "azure",
    "hcloud",
    "upcloud",
    "ovh",
    "alicloud",
    "vultr",
    "digitalocean",
    "oracle",
    "scaleway",
    "linode",
    "exoscale",
    "openstack",
];
