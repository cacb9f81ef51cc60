//! Table of regions: vendor, region, country, continent.
//!
//! In:  names from a user (`eu-west-1`, `aws~eu-west-1`, `DE`, `Germany`, `Europe`).
//! Out: the matching [`Place`]s; whether new customers can use a region ([`closed`]).
//! Not here: prices in a region (`embedded`), region ids of the Keeper (`remote`).
//!
//! The table was made from the vendors' published lists at the end of 2026. It has no regions that are closed to new
//! customers. A test checks that the table contains every region with a price.

/// One region of one vendor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    pub vendor_id: &'static str,
    /// Name of the region in the vendor's API.
    pub region: &'static str,
    /// ISO 3166 alpha-2 code of the country.
    pub country: &'static str,
}

/// Code, English name and continent of each country.
const COUNTRIES: &[(&str, &str, &str)] = &[
    ("AE", "United Arab Emirates", "Asia"),
    ("AT", "Austria", "Europe"),
    ("AU", "Australia", "Oceania"),
    ("BE", "Belgium", "Europe"),
    ("BH", "Bahrain", "Asia"),
    ("BR", "Brazil", "South America"),
    ("CA", "Canada", "North America"),
    ("CH", "Switzerland", "Europe"),
    ("CL", "Chile", "South America"),
    ("DE", "Germany", "Europe"),
    ("DK", "Denmark", "Europe"),
    ("ES", "Spain", "Europe"),
    ("FI", "Finland", "Europe"),
    ("FR", "France", "Europe"),
    ("GB", "United Kingdom", "Europe"),
    ("HK", "Hong Kong", "Asia"),
    ("ID", "Indonesia", "Asia"),
    ("IE", "Ireland", "Europe"),
    ("IL", "Israel", "Asia"),
    ("IN", "India", "Asia"),
    ("IT", "Italy", "Europe"),
    ("JP", "Japan", "Asia"),
    ("KR", "South Korea", "Asia"),
    ("MX", "Mexico", "North America"),
    ("MY", "Malaysia", "Asia"),
    ("NL", "Netherlands", "Europe"),
    ("NO", "Norway", "Europe"),
    ("NZ", "New Zealand", "Oceania"),
    ("PH", "Philippines", "Asia"),
    ("PL", "Poland", "Europe"),
    ("QA", "Qatar", "Asia"),
    ("SA", "Saudi Arabia", "Asia"),
    ("SE", "Sweden", "Europe"),
    ("SG", "Singapore", "Asia"),
    ("TH", "Thailand", "Asia"),
    ("TW", "Taiwan", "Asia"),
    ("US", "United States", "North America"),
    ("ZA", "South Africa", "Africa"),
];

pub const CONTINENTS: [&str; 6] = ["Africa", "Asia", "Europe", "North America", "Oceania", "South America"];

/// Vendor, and its regions by country. Names of regions are separated by blanks.
const REGIONS: &[(&str, &[(&str, &str)])] = &[
    (
        "aws",
        &[
            ("US", "us-east-1 us-east-2 us-west-1 us-west-2 us-west-2-lax-1"),
            ("CA", "ca-central-1 ca-west-1"),
            ("MX", "mx-central-1"),
            ("BR", "sa-east-1"),
            ("DE", "eu-central-1 eusc-de-east-1"),
            ("CH", "eu-central-2"),
            ("IE", "eu-west-1"),
            ("GB", "eu-west-2"),
            ("FR", "eu-west-3"),
            ("SE", "eu-north-1"),
            ("IT", "eu-south-1"),
            ("ES", "eu-south-2"),
            ("IL", "il-central-1"),
            ("AE", "me-central-1"),
            ("BH", "me-south-1"),
            ("ZA", "af-south-1"),
            ("HK", "ap-east-1"),
            ("TW", "ap-east-2"),
            ("JP", "ap-northeast-1 ap-northeast-3"),
            ("KR", "ap-northeast-2"),
            ("IN", "ap-south-1 ap-south-2"),
            ("SG", "ap-southeast-1"),
            ("AU", "ap-southeast-2 ap-southeast-4"),
            ("ID", "ap-southeast-3"),
            ("MY", "ap-southeast-5"),
            ("NZ", "ap-southeast-6"),
            ("TH", "ap-southeast-7"),
        ],
    ),
    (
        "azure",
        &[
            (
                "US",
                "eastus eastus2 centralus northcentralus southcentralus westcentralus westus westus2 westus3",
            ),
            ("CA", "canadacentral canadaeast"),
            ("MX", "mexicocentral"),
            ("BR", "brazilsouth"),
            ("CL", "chilecentral"),
            ("IE", "northeurope"),
            ("NL", "westeurope"),
            ("GB", "uksouth ukwest"),
            ("FR", "francecentral"),
            ("DE", "germanywestcentral"),
            ("CH", "switzerlandnorth"),
            ("AT", "austriaeast"),
            ("BE", "belgiumcentral"),
            ("DK", "denmarkeast"),
            ("ES", "spaincentral"),
            ("IT", "italynorth"),
            ("NO", "norwayeast"),
            ("PL", "polandcentral"),
            ("SE", "swedencentral"),
            ("IL", "israelcentral"),
            ("QA", "qatarcentral"),
            ("AE", "uaenorth"),
            ("ZA", "southafricanorth"),
            ("AU", "australiacentral australiaeast australiasoutheast"),
            ("NZ", "newzealandnorth"),
            ("IN", "centralindia southindia westindia"),
            ("JP", "japaneast japanwest"),
            ("KR", "koreacentral koreasouth"),
            ("HK", "eastasia"),
            ("SG", "southeastasia"),
            ("ID", "indonesiacentral"),
            ("MY", "malaysiawest"),
            ("TW", "taiwannorth taiwannorthwest"),
        ],
    ),
    (
        "gcp",
        &[
            ("US", "us-central1 us-east1 us-east4 us-east5 us-south1 us-west1 us-west2 us-west3 us-west4"),
            ("CA", "northamerica-northeast1 northamerica-northeast2"),
            ("MX", "northamerica-south1"),
            ("BR", "southamerica-east1"),
            ("CL", "southamerica-west1"),
            ("PL", "europe-central2"),
            ("FI", "europe-north1"),
            ("SE", "europe-north2"),
            ("ES", "europe-southwest1"),
            ("BE", "europe-west1"),
            ("GB", "europe-west2"),
            ("DE", "europe-west3 europe-west10"),
            ("NL", "europe-west4"),
            ("CH", "europe-west6"),
            ("IT", "europe-west8 europe-west12"),
            ("FR", "europe-west9"),
            ("IL", "me-west1"),
            ("QA", "me-central1"),
            ("SA", "me-central2"),
            ("ZA", "africa-south1"),
            ("TW", "asia-east1"),
            ("HK", "asia-east2"),
            ("JP", "asia-northeast1 asia-northeast2"),
            ("KR", "asia-northeast3"),
            ("IN", "asia-south1 asia-south2"),
            ("SG", "asia-southeast1"),
            ("ID", "asia-southeast2"),
            ("TH", "asia-southeast3"),
            ("AU", "australia-southeast1 australia-southeast2"),
        ],
    ),
    ("hcloud", &[("DE", "fsn1 nbg1"), ("FI", "hel1"), ("US", "ash hil"), ("SG", "sin")]),
    (
        "upcloud",
        &[
            ("AU", "au-syd1"),
            ("DE", "de-fra1"),
            ("DK", "dk-cph1"),
            ("ES", "es-mad1"),
            ("FI", "fi-hel1 fi-hel2"),
            ("NL", "nl-ams1"),
            ("NO", "no-svg1"),
            ("PL", "pl-waw1"),
            ("SE", "se-sto1"),
            ("SG", "sg-sin1"),
            ("GB", "uk-lon1"),
            ("US", "us-chi1 us-nyc1 us-sjo1"),
        ],
    ),
    (
        "vultr",
        &[
            ("US", "atl dfw ewr hnl lax mia ord sea sjc"),
            ("CA", "yto"),
            ("MX", "mex"),
            ("BR", "sao"),
            ("CL", "scl"),
            ("NL", "ams"),
            ("FR", "cdg"),
            ("DE", "fra"),
            ("GB", "lhr man"),
            ("ES", "mad"),
            ("SE", "sto"),
            ("PL", "waw"),
            ("IL", "tlv"),
            ("ZA", "jnb"),
            ("IN", "blr bom del"),
            ("JP", "itm nrt"),
            ("KR", "icn"),
            ("SG", "sgp"),
            ("AU", "mel syd"),
        ],
    ),
    (
        "alicloud",
        &[
            ("HK", "cn-hongkong"),
            ("JP", "ap-northeast-1"),
            ("KR", "ap-northeast-2"),
            ("SG", "ap-southeast-1"),
            ("MY", "ap-southeast-3"),
            ("ID", "ap-southeast-5"),
            ("PH", "ap-southeast-6"),
            ("TH", "ap-southeast-7"),
            ("DE", "eu-central-1"),
            ("GB", "eu-west-1"),
            ("US", "us-east-1 us-west-1"),
            ("MX", "na-south-1"),
            ("AE", "me-east-1"),
            ("SA", "me-central-1"),
        ],
    ),
];

/// Regions that a new customer cannot use: vendor, beginnings of the names, reason and source.
const CLOSED: &[(&str, &str, &str)] = &[
    (
        "aws",
        "us-gov- us-iso eu-iso",
        "only for the US government and its partners (docs.aws.amazon.com/govcloud-us)",
    ),
    (
        "aws",
        "cn-north",
        "needs an account of AWS China (docs.aws.amazon.com/global-infrastructure/latest/regions/aws-regions.html)",
    ),
    (
        "azure",
        "usgov usdod usnat ussec",
        "only for the US government and its partners (learn.microsoft.com/azure/azure-government)",
    ),
    ("azure", "china", "needs an account of Azure China, operated by 21Vianet (docs.azure.cn)"),
    (
        "azure",
        "jioindia",
        "not among the regions of the public cloud (learn.microsoft.com/azure/reliability/regions-list)",
    ),
    (
        "azure",
        "australiacentral2 brazilsoutheast francesouth germanynorth norwaywest southafricawest swedensouth \
         switzerlandwest uaecentral",
        "access is restricted, for example to disaster recovery (learn.microsoft.com/azure/reliability/regions-list)",
    ),
    (
        "alicloud",
        "cn-beijing cn-chengdu cn-fuzhou cn-guangzhou cn-hangzhou cn-heyuan cn-huhehaote cn-nanjing cn-qingdao \
         cn-shanghai cn-shenzhen cn-wuhan cn-wulanchabu cn-zhangjiakou cn-zhengzhou cn-zhongwei",
        "needs real-name verification in China (help.aliyun.com/en/oss/user-guide/0003-00000804)",
    ),
];

/// Why a new customer cannot use a region of a vendor; `None` for all other regions.
pub fn closed(vendor_id: &str, region: &str) -> Option<&'static str> {
    closed_reason(Some(vendor_id), region)
}

/// Whether a vendor has regions that new customers cannot use.
pub fn has_closed(vendor_id: &str) -> bool {
    CLOSED.iter().any(|(vendor, ..)| *vendor == vendor_id)
}

/// Like [`closed`], for a name from a user: of any vendor, or `vendor~region`.
pub fn closed_by_name(name: &str) -> Option<&'static str> {
    let (vendor, region) = vendor_and_region(name);
    closed_reason(vendor, region)
}

fn closed_reason(vendor: Option<&str>, region: &str) -> Option<&'static str> {
    let region = region.to_ascii_lowercase();
    let is_closed = |&&(of, names, _): &&(&str, &str, &str)| {
        vendor.is_none_or(|vendor| vendor.eq_ignore_ascii_case(of))
            && names.split_ascii_whitespace().any(|name| region.starts_with(name))
    };
    CLOSED.iter().find(is_closed).map(|(.., reason)| *reason)
}

fn vendor_and_region(name: &str) -> (Option<&str>, &str) {
    name.split_once('~').map_or((None, name), |(vendor, region)| (Some(vendor), region))
}

/// All regions that new customers can use, grouped by vendor.
pub fn places() -> impl Iterator<Item = Place> {
    REGIONS.iter().flat_map(|&(vendor_id, countries)| {
        countries.iter().flat_map(move |&(country, regions)| {
            regions.split_ascii_whitespace().map(move |region| Place { vendor_id, region, country })
        })
    })
}

/// Regions with this name at all vendors. `vendor~region` matches only the region of that vendor.
pub fn in_region(region: &str) -> impl Iterator<Item = Place> {
    let (vendor, name) = vendor_and_region(region);
    places().filter(move |place| {
        place.region.eq_ignore_ascii_case(name)
            && vendor.is_none_or(|vendor| place.vendor_id.eq_ignore_ascii_case(vendor))
    })
}

/// Country code of a country, which is given by its code or its English name.
pub fn country_code(country: &str) -> Option<&'static str> {
    COUNTRIES
        .iter()
        .find(|(code, name, _)| code.eq_ignore_ascii_case(country) || name.eq_ignore_ascii_case(country))
        .map(|(code, _, _)| *code)
}

/// Continent of a country code.
pub fn continent(code: &str) -> Option<&'static str> {
    COUNTRIES.iter().find(|(listed, _, _)| *listed == code).map(|(_, _, continent)| *continent)
}

pub fn country_codes() -> impl Iterator<Item = &'static str> {
    COUNTRIES.iter().map(|(code, _, _)| *code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn regions_countries_and_continents_are_consistent() {
        assert!(places().count() > 150, "the table is nearly empty");
        for place in places() {
            assert_eq!(closed(place.vendor_id, place.region), None, "{place:?}");
            let continent = continent(place.country).unwrap_or_else(|| panic!("{place:?} has no country"));
            assert!(CONTINENTS.contains(&continent), "{place:?}");
        }
        for code in country_codes() {
            assert!(places().any(|place| place.country == code), "{code} has no region");
        }
    }

    #[test]
    fn closed_regions_have_a_reason_with_a_source() {
        let regions = [
            ("azure", "jioindiawest"),
            ("azure", "JioIndiaCentral"),
            ("azure", "usgovvirginia"),
            ("azure", "usdodeast"),
            ("azure", "chinanorth3"),
            ("azure", "germanynorth"),
            ("azure", "australiacentral2"),
            ("aws", "us-gov-west-1"),
            ("aws", "us-isob-east-1"),
            ("aws", "cn-northwest-1"),
            ("alicloud", "cn-shanghai-finance-1"),
        ];
        for (vendor, region) in regions {
            let reason = closed(vendor, region).unwrap_or_else(|| panic!("{vendor}~{region} is open"));
            assert!(reason.ends_with(')') && reason.contains('.'), "{reason}");
        }
        for (vendor, region) in [
            ("azure", "australiacentral"),
            ("aws", "us-east-1"),
            ("alicloud", "cn-hongkong"),
            ("vultr", "cn-1"),
        ] {
            assert_eq!(closed(vendor, region), None, "{vendor}~{region}");
        }
        assert_eq!(closed_by_name("Azure~jioindiawest"), closed("azure", "jioindiawest"));
        assert_eq!(closed_by_name("cn-beijing"), closed("alicloud", "cn-beijing"));
        assert_eq!(closed_by_name("aws~jioindiawest"), None);
    }

    #[test]
    fn no_region_is_listed_twice() {
        let mut seen = BTreeSet::new();
        for place in places() {
            assert!(seen.insert((place.vendor_id, place.region)), "{place:?}");
        }
    }

    #[test]
    fn region_name_matches_all_vendors_or_the_given_one() {
        let vendors = |name: &str| in_region(name).map(|place| place.vendor_id).collect::<Vec<_>>();
        assert_eq!(vendors("us-east-1"), ["aws", "alicloud"]);
        assert_eq!(vendors("AWS~us-east-1"), ["aws"]);
        assert_eq!(vendors("us-middle-1"), [""; 0]);
        assert_eq!(vendors(""), [""; 0]);
    }

    #[test]
    fn country_is_found_by_code_and_by_name() {
        assert_eq!(country_code("de"), Some("DE"));
        assert_eq!(country_code("Germany"), Some("DE"));
        assert_eq!(country_code("Atlantis"), None);
    }
}
