//! The table of vendors: how each one's machines are recognised, and how its service is asked.
//!
//! In:  [`Dmi`].
//! Out: the vendors that it may be.
//! Not here: the requests themselves (`metadata`).
//!
//! A vendor is a line here and a function in `metadata`. The order matters where one is a special
//! case of another: `ovh` runs `openstack`, so it comes first.

use super::Cloud;
use super::dmi::Dmi;
use super::http::Client;
use super::metadata as ask;

pub(crate) struct Vendor {
    pub id: &'static str,
    /// Where its service is.
    pub host: &'static str,
    /// Whether the firmware says so.
    pub matches: fn(&Dmi) -> bool,
    /// What the service says, `None` when it is not this vendor's.
    pub ask: fn(&Client) -> Option<Cloud>,
}

/// Tag of every Azure machine; `sys_vendor` alone also matches a private Hyper-V.
const AZURE_TAG: &str = "7783-7084-3265-9085-8269-3286-77";

pub(crate) const VENDORS: [Vendor; 14] = [
    Vendor { id: "aws", host: ask::LINK_LOCAL, matches: is_aws, ask: ask::aws },
    Vendor { id: "gcp", host: ask::LINK_LOCAL, matches: is_gcp, ask: ask::gcp },
    Vendor {
        id: "azure",
        host: ask::LINK_LOCAL,
        matches: |dmi| dmi.chassis_asset_tag == AZURE_TAG,
        ask: ask::azure,
    },
    Vendor { id: "hcloud", host: ask::LINK_LOCAL, matches: is_hcloud, ask: ask::hcloud },
    Vendor { id: "upcloud", host: ask::LINK_LOCAL, matches: is_upcloud, ask: ask::upcloud },
    Vendor { id: "ovh", host: ask::LINK_LOCAL, matches: is_openstack, ask: ask::ovh },
    Vendor {
        id: "alicloud",
        host: ask::ALICLOUD,
        matches: |dmi| dmi.product_name == "Alibaba Cloud ECS",
        ask: ask::alicloud,
    },
    Vendor { id: "vultr", host: ask::LINK_LOCAL, matches: |dmi| dmi.sys_vendor == "Vultr", ask: ask::vultr },
    Vendor {
        id: "digitalocean",
        host: ask::LINK_LOCAL,
        matches: |dmi| dmi.sys_vendor == "DigitalOcean",
        ask: ask::digitalocean,
    },
    Vendor {
        id: "oracle",
        host: ask::LINK_LOCAL,
        matches: |dmi| dmi.chassis_asset_tag == "OracleCloud.com",
        ask: ask::oracle,
    },
    Vendor {
        id: "scaleway",
        host: ask::SCALEWAY,
        matches: |dmi| dmi.sys_vendor == "Scaleway",
        ask: ask::scaleway,
    },
    Vendor {
        id: "linode",
        host: ask::LINK_LOCAL,
        matches: |dmi| matches!(dmi.sys_vendor.as_str(), "Linode" | "Akamai"),
        ask: ask::linode,
    },
    Vendor {
        id: "exoscale",
        host: ask::LINK_LOCAL,
        matches: |dmi| dmi.product_name.starts_with("Exoscale"),
        ask: ask::exoscale,
    },
    Vendor { id: "openstack", host: ask::LINK_LOCAL, matches: is_openstack, ask: ask::openstack },
];

/// Nitro machines say it in `sys_vendor`, Xen ones only in version or UUID.
fn is_aws(dmi: &Dmi) -> bool {
    dmi.sys_vendor == "Amazon EC2"
        || dmi.product_version.to_ascii_lowercase().ends_with("amazon")
        || dmi.product_uuid.to_ascii_lowercase().starts_with("ec2")
}

fn is_gcp(dmi: &Dmi) -> bool {
    dmi.product_name == "Google Compute Engine" || dmi.product_serial.starts_with("GoogleCloud-")
}

/// Their rented hardware has other product names.
fn is_hcloud(dmi: &Dmi) -> bool {
    dmi.sys_vendor == "Hetzner" && dmi.product_name == "vServer"
}

fn is_upcloud(dmi: &Dmi) -> bool {
    dmi.sys_vendor == "UpCloud" && dmi.product_name == "Cloud Server"
}

fn is_openstack(dmi: &Dmi) -> bool {
    matches!(dmi.product_name.as_str(), "OpenStack Nova" | "OpenStack Compute")
}

/// What the firmware alone tells of a machine of this vendor.
pub(crate) fn from_firmware(id: &'static str, dmi: &Dmi) -> Cloud {
    let mut cloud = Cloud::new(id);
    if dmi.sys_vendor == "Amazon EC2" {
        cloud.instance_type = ask::plausible(&dmi.product_name);
        cloud.instance_id = ask::plausible(&dmi.board_asset_tag).filter(|id| id.starts_with("i-"));
    }
    cloud
}
