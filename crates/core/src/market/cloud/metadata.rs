//! Requests to the metadata service of each vendor.
//!
//! In:  a [`MetadataClient`](Client).
//! Out: a [`Cloud`] with the fields received before the deadline, or `None` if the service belongs to another vendor:
//!      several vendors use the same address, and `openstack` imitates `aws`.
//! Not here: which vendors are tried (`mod`).
//!
//! Each function requests instance type and region first. If the service is slow, only less important fields are lost.

use super::Cloud;
use super::client::MetadataClient as Client;
use serde_json::Value;

/// Address of the metadata services of all vendors except two.
pub(crate) const LINK_LOCAL: &str = "169.254.169.254";
pub(crate) const ALICLOUD: &str = "100.100.100.200";
pub(crate) const SCALEWAY: &str = "169.254.42.42";

/// The text, if it looks like a name; `None` for other text such as an error page.
pub(crate) fn plausible(text: &str) -> Option<String> {
    let text = text.trim();
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || "-_.:/+".contains(letter);
    let has_letter = text.contains(|letter: char| letter.is_ascii_alphanumeric());
    (has_letter && text.len() <= 128 && text.chars().all(is_name)).then(|| text.to_owned())
}

fn name(body: Option<String>) -> Option<String> {
    plausible(&body?)
}

fn json(body: Option<String>) -> Option<Value> {
    serde_json::from_str(&body?).ok()
}

/// The text or number at a JSON pointer. Some ids are numbers.
fn field(value: &Value, pointer: &str) -> Option<String> {
    match value.pointer(pointer)? {
        Value::String(text) => plausible(text),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

fn without_last_part(zone: &str) -> Option<String> {
    zone.rsplit_once('-').map(|(region, _)| region.to_owned())
}

/// Requests a session token. Without a token, `aws` and `alicloud` use the first version of their protocol.
fn token(client: &Client, host: &str, path: &str, ttl_header: &str) -> Option<String> {
    let token = client.put(host, path, &[(ttl_header, "60")])?.trim().to_owned();
    (!token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic())).then_some(token)
}

pub(crate) fn aws(client: &Client) -> Option<Cloud> {
    let token = token(client, LINK_LOCAL, "/latest/api/token", "X-aws-ec2-metadata-token-ttl-seconds");
    let header = token.as_deref().map(|token| ("X-aws-ec2-metadata-token", token));
    let get =
        |path: &str| name(client.get(LINK_LOCAL, &format!("/latest/meta-data/{path}"), header.as_slice()));
    // OpenStack and other clouds serve the same paths, but return another domain.
    get("services/domain").filter(|domain| domain.starts_with("amazonaws.com"))?;
    let mut cloud = Cloud::new("aws");
    cloud.instance_type = get("instance-type");
    cloud.region = get("placement/region");
    cloud.zone = get("placement/availability-zone");
    cloud.instance_id = get("instance-id");
    cloud.spot = get("instance-life-cycle").map(|cycle| cycle == "spot");
    Some(cloud)
}

pub(crate) fn alicloud(client: &Client) -> Option<Cloud> {
    let token = token(client, ALICLOUD, "/latest/api/token", "X-aliyun-ecs-metadata-token-ttl-seconds");
    let header = token.as_deref().map(|token| ("X-aliyun-ecs-metadata-token", token));
    let get =
        |path: &str| name(client.get(ALICLOUD, &format!("/latest/meta-data/{path}"), header.as_slice()));
    let mut cloud = Cloud::new("alicloud");
    // The name of an instance type is, for example, `ecs.g7.large`.
    cloud.instance_type = get("instance/instance-type").filter(|name| name.starts_with("ecs."));
    cloud.region = get("region-id");
    cloud.instance_type.as_ref().or(cloud.region.as_ref())?;
    cloud.zone = get("zone-id");
    cloud.instance_id = get("instance-id");
    // Only spot instances have a termination time. An instance without this time may still be a spot instance.
    cloud.spot = get("instance/spot/termination-time").map(|_| true);
    Some(cloud)
}

pub(crate) fn gcp(client: &Client) -> Option<Cloud> {
    let get = |path: &str| {
        let path = format!("/computeMetadata/v1/instance/{path}");
        name(client.get(LINK_LOCAL, &path, &[("Metadata-Flavor", "Google")]))
    };
    // The texts are `projects/123/machineTypes/n2-standard-4` and `projects/123/zones/us-east1-b`.
    let last = |text: String, kind: &str| {
        let (head, last) = text.rsplit_once('/')?;
        head.ends_with(kind).then(|| last.to_owned())
    };
    let mut cloud = Cloud::new("gcp");
    cloud.instance_type = get("machine-type").and_then(|text| last(text, "/machineTypes"));
    cloud.zone = get("zone").and_then(|text| last(text, "/zones"));
    cloud.region = cloud.zone.as_deref().and_then(without_last_part);
    cloud.instance_type.as_ref().or(cloud.zone.as_ref())?;
    cloud.instance_id = get("id");
    cloud.spot = get("scheduling/preemptible").and_then(|text| text.to_ascii_lowercase().parse().ok());
    Some(cloud)
}

pub(crate) fn azure(client: &Client) -> Option<Cloud> {
    let path = "/metadata/instance?api-version=2021-02-01";
    let answer = json(client.get(LINK_LOCAL, path, &[("Metadata", "true")]))?;
    let mut cloud = Cloud::new("azure");
    cloud.instance_type = field(&answer, "/compute/vmSize");
    cloud.region = field(&answer, "/compute/location");
    cloud.zone = field(&answer, "/compute/zone");
    cloud.instance_id = field(&answer, "/compute/vmId");
    cloud.spot = answer
        .pointer("/compute/priority")
        .and_then(Value::as_str)
        .map(|text| text.eq_ignore_ascii_case("spot"));
    cloud.instance_type.is_some().then_some(cloud)
}

pub(crate) fn hcloud(client: &Client) -> Option<Cloud> {
    let answer = client.get(LINK_LOCAL, "/hetzner/v1/metadata", &[])?;
    let line = |key: &str| {
        let value = answer.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
        plausible(value.trim().trim_matches(['"', '\'']))
    };
    let mut cloud = Cloud::new("hcloud");
    cloud.zone = line("availability-zone");
    // `fsn1-dc14` is a data centre in region `fsn1`. The key `region` contains the network zone.
    cloud.region = cloud
        .zone
        .as_deref()
        .map(|zone| zone.split_once("-dc").map_or(zone, |(region, _)| region).to_owned());
    cloud.instance_id = line("instance-id");
    cloud.zone.as_ref().or(cloud.instance_id.as_ref()).is_some().then_some(cloud)
}

pub(crate) fn upcloud(client: &Client) -> Option<Cloud> {
    let answer = json(client.get(LINK_LOCAL, "/metadata/v1.json", &[]))?;
    field(&answer, "/cloud_name").filter(|name| name == "upcloud")?;
    let mut cloud = Cloud::new("upcloud");
    cloud.region = field(&answer, "/region");
    cloud.instance_id = field(&answer, "/instance_id");
    Some(cloud)
}

pub(crate) fn digitalocean(client: &Client) -> Option<Cloud> {
    let answer = json(client.get(LINK_LOCAL, "/metadata/v1.json", &[]))?;
    let mut cloud = Cloud::new("digitalocean");
    cloud.instance_id = field(&answer, "/droplet_id");
    cloud.region = field(&answer, "/region");
    cloud.instance_id.is_some().then_some(cloud)
}

pub(crate) fn vultr(client: &Client) -> Option<Cloud> {
    let answer = json(client.get(LINK_LOCAL, "/v1.json", &[]))?;
    let mut cloud = Cloud::new("vultr");
    cloud.region = field(&answer, "/region/regioncode").map(|code| code.to_ascii_lowercase());
    cloud.instance_id = field(&answer, "/instance-v2-id");
    cloud.region.as_ref().or(cloud.instance_id.as_ref()).is_some().then_some(cloud)
}

pub(crate) fn oracle(client: &Client) -> Option<Cloud> {
    let answer = json(client.get(LINK_LOCAL, "/opc/v2/instance/", &[("Authorization", "Bearer Oracle")]))?;
    let mut cloud = Cloud::new("oracle");
    cloud.instance_type = field(&answer, "/shape");
    cloud.region = field(&answer, "/canonicalRegionName");
    cloud.zone = field(&answer, "/availabilityDomain");
    cloud.instance_id = field(&answer, "/id");
    cloud.instance_type.is_some().then_some(cloud)
}

pub(crate) fn scaleway(client: &Client) -> Option<Cloud> {
    let answer = json(client.get(SCALEWAY, "/conf?format=json", &[]))?;
    let mut cloud = Cloud::new("scaleway");
    cloud.instance_type = field(&answer, "/commercial_type");
    cloud.zone = field(&answer, "/location/zone_id").or_else(|| field(&answer, "/ZONE"));
    cloud.region = cloud.zone.as_deref().and_then(without_last_part);
    cloud.instance_id = field(&answer, "/id");
    cloud.instance_type.is_some().then_some(cloud)
}

pub(crate) fn linode(client: &Client) -> Option<Cloud> {
    let token = token(client, LINK_LOCAL, "/v1/token", "Metadata-Token-Expiry-Seconds")?;
    let headers = [("Metadata-Token", token.as_str()), ("Accept", "application/json")];
    let answer = json(client.get(LINK_LOCAL, "/v1/instance", &headers))?;
    let mut cloud = Cloud::new("linode");
    cloud.instance_type = field(&answer, "/type");
    cloud.region = field(&answer, "/region");
    cloud.instance_id = field(&answer, "/id");
    cloud.instance_type.is_some().then_some(cloud)
}

pub(crate) fn exoscale(client: &Client) -> Option<Cloud> {
    let get = |path: &str| name(client.get(LINK_LOCAL, &format!("/1.0/meta-data/{path}"), &[]));
    let mut cloud = Cloud::new("exoscale");
    // EC2 also serves `/1.0`, but it has no `service-offering`.
    cloud.instance_type = Some(get("service-offering")?);
    cloud.region = get("availability-zone");
    cloud.instance_id = get("instance-id");
    Some(cloud)
}

pub(crate) fn openstack(client: &Client) -> Option<Cloud> {
    nova(client, "openstack")
}

pub(crate) fn ovh(client: &Client) -> Option<Cloud> {
    let network = client.get(LINK_LOCAL, "/openstack/latest/network_data.json", &[])?;
    // Only the address of its DNS resolver distinguishes OVH from other OpenStack clouds.
    if !network.contains("\"213.186.33.99\"") {
        return None;
    }
    let mut cloud = nova(client, "ovh").unwrap_or_else(|| Cloud::new("ovh"));
    cloud.region = cloud.region.filter(|zone| zone != "nova");
    Some(cloud)
}

fn nova(client: &Client, id: &'static str) -> Option<Cloud> {
    let answer = json(client.get(LINK_LOCAL, "/openstack/latest/meta_data.json", &[]))?;
    let mut cloud = Cloud::new(id);
    cloud.instance_id = Some(field(&answer, "/uuid")?);
    cloud.region = field(&answer, "/availability_zone");
    cloud.instance_type = name(client.get(LINK_LOCAL, "/latest/meta-data/instance-type", &[]));
    Some(cloud)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_page_is_not_a_name() {
        for text in ["", "  ", "<html>", "two words", "line\nline", "naïve", "---", &"x".repeat(129)] {
            assert_eq!(plausible(text), None, "{text}");
        }
        assert_eq!(plausible(" m5.large\n"), Some("m5.large".to_owned()));
    }
}
