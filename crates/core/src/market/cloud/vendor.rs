//! Table of vendors: how to recognise the firmware texts of their machines, and the request to their metadata service.
//!
//! In:  [`Dmi`].
//! Out: the vendors that match the firmware texts.
//! Not here: the requests (`metadata`).
//!
//! A vendor has an entry in [`VENDORS`], a function in `metadata` and an id in `market::VENDOR_IDS`. A special case
//! comes before the general case: `ovh` comes before `openstack`.

use super::Cloud;
use super::client::MetadataClient;
use super::dmi::Dmi;
use super::metadata as request;

pub(crate) struct Vendor {
    pub id: &'static str,
    /// IP address of the metadata service.
    pub host: &'static str,
    /// Whether firmware texts are those of a machine of the vendor.
    pub matches: fn(&Dmi) -> bool,
    /// Requests the vendor's metadata service; `None` if the service belongs to another vendor.
    pub request: fn(&MetadataClient) -> Option<Cloud>,
}

/// Asset tag of every Azure machine. `sys_vendor` is not enough: it also matches a private Hyper-V host.
const AZURE_TAG: &str = "7783-7084-3265-9085-8269-3286-77";

pub(crate) const VENDORS: [Vendor; 14] = [
    Vendor { id: "aws", host: request::LINK_LOCAL, matches: is_aws, request: request::aws },
    Vendor { id: "gcp", host: request::LINK_LOCAL, matches: is_gcp, request: request::gcp },
    Vendor {
        id: "azure",
        host: request::LINK_LOCAL,
        matches: |dmi| dmi.chassis_asset_tag == AZURE_TAG,
        request: request::azure,
    },
    Vendor { id: "hcloud", host: request::LINK_LOCAL, matches: is_hcloud, request: request::hcloud },
    Vendor { id: "upcloud", host: request::LINK_LOCAL, matches: is_upcloud, request: request::upcloud },
    Vendor { id: "ovh", host: request::LINK_LOCAL, matches: is_openstack, request: request::ovh },
    Vendor {
        id: "alicloud",
        host: request::ALICLOUD,
        matches: |dmi| dmi.product_name == "Alibaba Cloud ECS",
        request: request::alicloud,
    },
    Vendor {
        id: "vultr",
        host: request::LINK_LOCAL,
        matches: |dmi| dmi.sys_vendor == "Vultr",
        request: request::vultr,
    },
    Vendor {
        id: "digitalocean",
        host: request::LINK_LOCAL,
        matches: |dmi| dmi.sys_vendor == "DigitalOcean",
        request: request::digitalocean,
    },
    Vendor {
        id: "oracle",
        host: request::LINK_LOCAL,
        matches: |dmi| dmi.chassis_asset_tag == "OracleCloud.com",
        request: request::oracle,
    },
    Vendor {
        id: "scaleway",
        host: request::SCALEWAY,
        matches: |dmi| dmi.sys_vendor == "Scaleway",
        request: request::scaleway,
    },
    Vendor {
        id: "linode",
        host: request::LINK_LOCAL,
        matches: |dmi| matches!(dmi.sys_vendor.as_str(), "Linode" | "Akamai"),
        request: request::linode,
    },
    Vendor {
        id: "exoscale",
        host: request::LINK_LOCAL,
        matches: |dmi| dmi.product_name.starts_with("Exoscale"),
        request: request::exoscale,
    },
    Vendor { id: "openstack", host: request::LINK_LOCAL, matches: is_openstack, request: request::openstack },
];

/// Nitro machines have Amazon's name in `sys_vendor`, Xen machines only in the version or the UUID.
fn is_aws(dmi: &Dmi) -> bool {
    dmi.sys_vendor == "Amazon EC2"
        || dmi.product_version.to_ascii_lowercase().ends_with("amazon")
        || dmi.product_uuid.to_ascii_lowercase().starts_with("ec2")
}

fn is_gcp(dmi: &Dmi) -> bool {
    dmi.product_name == "Google Compute Engine" || dmi.product_serial.starts_with("GoogleCloud-")
}

/// The product name is compared because dedicated servers of Hetzner have the same vendor.
fn is_hcloud(dmi: &Dmi) -> bool {
    dmi.sys_vendor == "Hetzner" && dmi.product_name == "vServer"
}

fn is_upcloud(dmi: &Dmi) -> bool {
    dmi.sys_vendor == "UpCloud" && dmi.product_name == "Cloud Server"
}

fn is_openstack(dmi: &Dmi) -> bool {
    matches!(dmi.product_name.as_str(), "OpenStack Nova" | "OpenStack Compute")
}

/// The cloud, with those fields that follow from the firmware texts.
pub(crate) fn from_firmware(id: &'static str, dmi: &Dmi) -> Cloud {
    let mut cloud = Cloud::new(id);
    if dmi.sys_vendor == "Amazon EC2" {
        cloud.instance_type = request::plausible(&dmi.product_name);
        cloud.instance_id = request::plausible(&dmi.board_asset_tag).filter(|id| id.starts_with("i-"));
    }
    cloud
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_has_the_ids_of_the_market() {
        assert_eq!(VENDORS.map(|vendor| vendor.id), crate::market::VENDOR_IDS);
    }
}
