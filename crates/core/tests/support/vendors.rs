//! Firmware texts and metadata service of every vendor, from its documentation.

use super::support::{Reply, Request};
use std::path::Path;

/// A vendor, with the expected result of a discovery.
pub struct Vendor {
    pub id: &'static str,
    pub dmi: &'static [(&'static str, &'static str)],
    pub service: fn(&Request) -> Reply,
    pub instance_type: Option<&'static str>,
    /// Instance type that the firmware texts contain.
    pub firmware_type: Option<&'static str>,
    pub region: Option<&'static str>,
    pub zone: Option<&'static str>,
    pub instance_id: Option<&'static str>,
    pub spot: Option<bool>,
}

pub const VENDORS: &[Vendor] = &[
    Vendor {
        id: "aws",
        dmi: &[
            ("sys_vendor", "Amazon EC2"),
            ("product_name", "c5.large"),
            ("board_asset_tag", "i-0abc123def4567890"),
        ],
        service: aws,
        instance_type: Some("c5.large"),
        firmware_type: Some("c5.large"),
        region: Some("us-west-2"),
        zone: Some("us-west-2b"),
        instance_id: Some("i-0abc123def4567890"),
        spot: Some(true),
    },
    Vendor {
        id: "gcp",
        dmi: &[("sys_vendor", "Google"), ("product_name", "Google Compute Engine")],
        service: gcp,
        instance_type: Some("n2-standard-4"),
        firmware_type: None,
        region: Some("europe-west4"),
        zone: Some("europe-west4-a"),
        instance_id: Some("4567890123456789012"),
        spot: Some(false),
    },
    Vendor {
        id: "azure",
        dmi: &[
            ("sys_vendor", "Microsoft Corporation"),
            ("chassis_asset_tag", "7783-7084-3265-9085-8269-3286-77"),
        ],
        service: azure,
        instance_type: Some("Standard_D4s_v5"),
        firmware_type: None,
        region: Some("westeurope"),
        zone: Some("1"),
        instance_id: Some("02aab8a4-74ef-476e-8182-f6d2ba4166a6"),
        spot: Some(true),
    },
    Vendor {
        id: "hcloud",
        dmi: &[("sys_vendor", "Hetzner"), ("product_name", "vServer")],
        service: hcloud,
        instance_type: None,
        firmware_type: None,
        region: Some("fsn1"),
        zone: Some("fsn1-dc14"),
        instance_id: Some("12345678"),
        spot: None,
    },
    Vendor {
        id: "upcloud",
        dmi: &[("sys_vendor", "UpCloud"), ("product_name", "Cloud Server")],
        service: upcloud,
        instance_type: None,
        firmware_type: None,
        region: Some("fi-hel1"),
        zone: None,
        instance_id: Some("00123456-1111-2222-3333-123456789012"),
        spot: None,
    },
    Vendor {
        id: "ovh",
        dmi: &[("sys_vendor", "OpenStack Foundation"), ("product_name", "OpenStack Nova")],
        service: ovh,
        instance_type: Some("b3-8"),
        firmware_type: None,
        region: None,
        zone: None,
        instance_id: Some("83679162-1378-4288-a2d4-70e13ec132aa"),
        spot: None,
    },
    Vendor {
        id: "alicloud",
        dmi: &[("sys_vendor", "Alibaba Cloud"), ("product_name", "Alibaba Cloud ECS")],
        service: alicloud,
        instance_type: Some("ecs.g7.large"),
        firmware_type: None,
        region: Some("cn-hangzhou"),
        zone: Some("cn-hangzhou-i"),
        instance_id: Some("i-bp13znx0m0me8cquu"),
        spot: None,
    },
    Vendor {
        id: "vultr",
        dmi: &[("sys_vendor", "Vultr"), ("product_name", "VHF")],
        service: vultr,
        instance_type: None,
        firmware_type: None,
        region: Some("ewr"),
        zone: None,
        instance_id: Some("a747bfz6385e"),
        spot: None,
    },
    Vendor {
        id: "digitalocean",
        dmi: &[("sys_vendor", "DigitalOcean"), ("product_name", "Droplet")],
        service: digitalocean,
        instance_type: None,
        firmware_type: None,
        region: Some("nyc3"),
        zone: None,
        instance_id: Some("2756294"),
        spot: None,
    },
    Vendor {
        id: "oracle",
        dmi: &[("sys_vendor", "QEMU"), ("chassis_asset_tag", "OracleCloud.com")],
        service: oracle,
        instance_type: Some("VM.Standard.E4.Flex"),
        firmware_type: None,
        region: Some("us-ashburn-1"),
        zone: Some("EMIr:US-ASHBURN-AD-1"),
        instance_id: Some("ocid1.instance.oc1.iad.abcd"),
        spot: None,
    },
    Vendor {
        id: "scaleway",
        dmi: &[("sys_vendor", "Scaleway"), ("product_name", "SCW-DEV1-S")],
        service: scaleway,
        instance_type: Some("DEV1-S"),
        firmware_type: None,
        region: Some("fr-par"),
        zone: Some("fr-par-1"),
        instance_id: Some("6a2f6e46-7a4e-4d3c-8f0a-000000000000"),
        spot: None,
    },
    Vendor {
        id: "linode",
        dmi: &[("sys_vendor", "Akamai"), ("product_name", "Compute Instance")],
        service: linode,
        instance_type: Some("g6-standard-2"),
        firmware_type: None,
        region: Some("us-east"),
        zone: None,
        instance_id: Some("12345"),
        spot: None,
    },
    Vendor {
        id: "exoscale",
        dmi: &[("sys_vendor", "Exoscale"), ("product_name", "Exoscale Compute Platform")],
        service: exoscale,
        instance_type: Some("standard.medium"),
        firmware_type: None,
        region: Some("ch-gva-2"),
        zone: None,
        instance_id: Some("5b2a7b04-3b3a-4b1c-9d5e-111111111111"),
        spot: None,
    },
    Vendor {
        id: "openstack",
        dmi: &[("sys_vendor", "RDO"), ("product_name", "OpenStack Compute")],
        service: openstack,
        instance_type: Some("m1.small"),
        firmware_type: None,
        region: Some("az1"),
        zone: None,
        instance_id: Some("83679162-1378-4288-a2d4-70e13ec132aa"),
        spot: None,
    },
];

/// Writes firmware texts below a root folder.
pub fn write_dmi(root: &Path, files: &[(&str, &str)]) {
    let dir = root.join("sys/class/dmi/id");
    std::fs::create_dir_all(&dir).unwrap();
    for (name, text) in files {
        std::fs::write(dir.join(name), format!("{text}\n")).unwrap();
    }
}

fn not_found() -> Reply {
    Reply::status(404, "<html><body>404 - Not Found</body></html>")
}

fn aws(request: &Request) -> Reply {
    const TOKEN: &str = "AQAEANnGtOaq-secret==";
    if request.method == "PUT" {
        return match (request.path.as_str(), request.header("X-aws-ec2-metadata-token-ttl-seconds")) {
            ("/latest/api/token", Some(seconds)) if seconds.parse::<u32>().is_ok() => Reply::ok(TOKEN),
            _ => Reply::status(400, "Bad Request"),
        };
    }
    if request.header("X-aws-ec2-metadata-token") != Some(TOKEN) {
        return Reply::status(401, "Unauthorized");
    }
    aws_tree(request)
}

/// Replies to each path without checking the session token, as in the older protocol.
pub fn aws_tree(request: &Request) -> Reply {
    match request.path.as_str() {
        "/latest/meta-data/services/domain" => Reply::ok("amazonaws.com"),
        "/latest/meta-data/instance-type" => Reply::ok("c5.large"),
        "/latest/meta-data/placement/region" => Reply::ok("us-west-2"),
        "/latest/meta-data/placement/availability-zone" => Reply::ok("us-west-2b"),
        "/latest/meta-data/instance-id" => Reply::ok("i-0abc123def4567890"),
        "/latest/meta-data/instance-life-cycle" => Reply::ok("spot"),
        _ => not_found(),
    }
}

fn gcp(request: &Request) -> Reply {
    if request.header("Metadata-Flavor") != Some("Google") {
        return Reply::status(403, "Missing Metadata-Flavor:Google header.");
    }
    match request.path.as_str() {
        "/computeMetadata/v1/instance/machine-type" => Reply::ok("projects/1234/machineTypes/n2-standard-4"),
        "/computeMetadata/v1/instance/zone" => Reply::ok("projects/1234/zones/europe-west4-a"),
        "/computeMetadata/v1/instance/id" => Reply::ok("4567890123456789012"),
        "/computeMetadata/v1/instance/scheduling/preemptible" => Reply::ok("FALSE"),
        _ => not_found(),
    }
}

fn azure(request: &Request) -> Reply {
    if request.header("Metadata") != Some("true") {
        return Reply::status(400, r#"{"error": "Bad request. Required metadata header not specified"}"#);
    }
    match request.path.as_str() {
        "/metadata/instance?api-version=2021-02-01" => Reply::ok(
            r#"{"compute": {"location": "westeurope", "priority": "Spot", "vmId": "02aab8a4-74ef-476e-8182-f6d2ba4166a6",
                "vmSize": "Standard_D4s_v5", "zone": "1"}, "network": {"interface": []}}"#,
        ),
        _ => not_found(),
    }
}

fn hcloud(request: &Request) -> Reply {
    match request.path.as_str() {
        "/hetzner/v1/metadata" => Reply::ok(
            "availability-zone: fsn1-dc14\nhostname: my-server\ninstance-id: 12345678\nlocal-ipv4: ''\n\
             public-ipv4: 1.2.3.4\nregion: eu-central\nvendor_data: |\n  availability-zone: wrong\n",
        ),
        _ => not_found(),
    }
}

fn upcloud(request: &Request) -> Reply {
    match request.path.as_str() {
        "/metadata/v1.json" => Reply::ok(
            r#"{"cloud_name": "upcloud", "instance_id": "00123456-1111-2222-3333-123456789012", "platform": "upcloud",
                "region": "fi-hel1", "subplatform": "metadata (http://169.254.169.254)"}"#,
        ),
        _ => not_found(),
    }
}

fn digitalocean(request: &Request) -> Reply {
    match request.path.as_str() {
        "/metadata/v1.json" => Reply::ok(r#"{"droplet_id": 2756294, "hostname": "d", "region": "nyc3"}"#),
        _ => not_found(),
    }
}

const NOVA: &str =
    r#"{"uuid": "83679162-1378-4288-a2d4-70e13ec132aa", "availability_zone": "ZONE", "hostname": "t"}"#;

fn ovh(request: &Request) -> Reply {
    match request.path.as_str() {
        "/openstack/latest/network_data.json" => {
            Reply::ok(r#"{"services": [{"type": "dns", "address": "213.186.33.99"}]}"#)
        }
        "/openstack/latest/meta_data.json" => Reply::ok(NOVA.replace("ZONE", "nova")),
        "/latest/meta-data/instance-type" => Reply::ok("b3-8"),
        // OpenStack serves some paths of EC2, but not `services/domain`.
        "/latest/meta-data/instance-id" => Reply::ok("i-00000001"),
        _ => not_found(),
    }
}

fn openstack(request: &Request) -> Reply {
    match request.path.as_str() {
        "/openstack/latest/network_data.json" => {
            Reply::ok(r#"{"services": [{"type": "dns", "address": "9.9.9.9"}]}"#)
        }
        "/openstack/latest/meta_data.json" => Reply::ok(NOVA.replace("ZONE", "az1")),
        "/latest/meta-data/instance-type" => Reply::ok("m1.small"),
        // Some clouds also serve `services/domain`, with another value.
        "/latest/meta-data/services/domain" => Reply::ok("cloud.example"),
        "/latest/meta-data/instance-id" => Reply::ok("i-00000001"),
        _ => not_found(),
    }
}

fn alicloud(request: &Request) -> Reply {
    const TOKEN: &str = "YzQ3M2Q5-token";
    if request.method == "PUT" {
        return match (request.path.as_str(), request.header("X-aliyun-ecs-metadata-token-ttl-seconds")) {
            ("/latest/api/token", Some(_)) => Reply::ok(TOKEN),
            _ => Reply::status(400, "Bad Request"),
        };
    }
    if request.header("X-aliyun-ecs-metadata-token") != Some(TOKEN) {
        return Reply::status(403, "Forbidden");
    }
    alicloud_tree(request)
}

/// Replies to each path without checking the session token, as in the older protocol.
pub fn alicloud_tree(request: &Request) -> Reply {
    match request.path.as_str() {
        "/latest/meta-data/instance/instance-type" => Reply::ok("ecs.g7.large"),
        "/latest/meta-data/region-id" => Reply::ok("cn-hangzhou"),
        "/latest/meta-data/zone-id" => Reply::ok("cn-hangzhou-i"),
        "/latest/meta-data/instance-id" => Reply::ok("i-bp13znx0m0me8cquu"),
        _ => not_found(),
    }
}

fn vultr(request: &Request) -> Reply {
    match request.path.as_str() {
        "/v1.json" => Reply::ok(
            r#"{"hostname": "v", "instance-v2-id": "a747bfz6385e", "instanceid": "42872224", "region": {"regioncode": "EWR"}}"#,
        ),
        _ => not_found(),
    }
}

fn oracle(request: &Request) -> Reply {
    if request.header("Authorization") != Some("Bearer Oracle") {
        return Reply::status(403, "Forbidden");
    }
    match request.path.as_str() {
        "/opc/v2/instance/" => Reply::ok(
            r#"{"availabilityDomain": "EMIr:US-ASHBURN-AD-1", "canonicalRegionName": "us-ashburn-1",
                "id": "ocid1.instance.oc1.iad.abcd", "region": "iad", "shape": "VM.Standard.E4.Flex"}"#,
        ),
        _ => not_found(),
    }
}

fn scaleway(request: &Request) -> Reply {
    match request.path.as_str() {
        "/conf?format=json" => Reply::ok(
            r#"{"id": "6a2f6e46-7a4e-4d3c-8f0a-000000000000", "commercial_type": "DEV1-S",
                "location": {"zone_id": "fr-par-1"}}"#,
        ),
        _ => not_found(),
    }
}

fn linode(request: &Request) -> Reply {
    match (request.method.as_str(), request.path.as_str()) {
        ("PUT", "/v1/token") if request.header("Metadata-Token-Expiry-Seconds").is_some() => {
            Reply::ok("f0e1d2")
        }
        ("GET", "/v1/instance") if request.header("Metadata-Token") == Some("f0e1d2") => {
            if request.header("Accept") == Some("application/json") {
                Reply::ok(r#"{"id": 12345, "label": "my", "region": "us-east", "type": "g6-standard-2"}"#)
            } else {
                Reply::ok("id: 12345\nregion: us-east\ntype: g6-standard-2\n")
            }
        }
        (_, "/v1/token" | "/v1/instance") => Reply::status(401, "Unauthorized"),
        _ => not_found(),
    }
}

fn exoscale(request: &Request) -> Reply {
    match request.path.as_str() {
        "/1.0/meta-data/service-offering" => Reply::ok("standard.medium"),
        "/1.0/meta-data/availability-zone" => Reply::ok("ch-gva-2"),
        "/1.0/meta-data/instance-id" => Reply::ok("5b2a7b04-3b3a-4b1c-9d5e-111111111111"),
        _ => not_found(),
    }
}
