//! Table of regions: vendor, region, country, continent.
//!
//! In:  names from a user (`eu-west-1`, `aws~eu-west-1`, `DE`, `Germany`, `Europe`).
//! Out: the matching [`Place`]s.
//! Not here: prices in a region (`embedded`), region ids of the Keeper (`remote`).
//!
//! The table was made from the vendors' published lists at the end of 2026 and includes government and China regions. A
//! test checks that the table contains every region with a price.

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
    ("CN", "China", "Asia"),
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
            ("US", "us-east-1 us-east-2 us-west-1 us-west-2 us-west-2-lax-1 us-gov-east-1 us-gov-west-1"),
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
            ("CN", "cn-north-1 cn-northwest-1"),
        ],
    ),
    (
        "azure",
        &[
            (
                "US",
                "eastus eastus2 centralus northcentralus southcentralus westcentralus westus westus2 westus3 \
                 usgovarizona usgovtexas usgovvirginia",
            ),
            ("CA", "canadacentral canadaeast"),
            ("MX", "mexicocentral"),
            ("BR", "brazilsouth brazilsoutheast"),
            ("CL", "chilecentral"),
            ("IE", "northeurope"),
            ("NL", "westeurope"),
            ("GB", "uksouth ukwest"),
            ("FR", "francecentral francesouth"),
            ("DE", "germanynorth germanywestcentral"),
            ("CH", "switzerlandnorth switzerlandwest"),
            ("AT", "austriaeast"),
            ("BE", "belgiumcentral"),
            ("DK", "denmarkeast"),
            ("ES", "spaincentral"),
            ("IT", "italynorth"),
            ("NO", "norwayeast norwaywest"),
            ("PL", "polandcentral"),
            ("SE", "swedencentral swedensouth"),
            ("IL", "israelcentral"),
            ("QA", "qatarcentral"),
            ("AE", "uaecentral uaenorth"),
            ("ZA", "southafricanorth southafricawest"),
            ("AU", "australiacentral australiacentral2 australiaeast australiasoutheast"),
            ("NZ", "newzealandnorth"),
            ("IN", "centralindia southindia westindia jioindiacentral jioindiawest"),
            ("JP", "japaneast japanwest"),
            ("KR", "koreacentral koreasouth"),
            ("HK", "eastasia"),
            ("SG", "southeastasia"),
            ("ID", "indonesiacentral"),
            ("MY", "malaysiawest"),
            ("TW", "taiwannorth taiwannorthwest"),
            ("CN", "chinaeast chinaeast2 chinaeast3 chinanorth chinanorth2 chinanorth3"),
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
            (
                "CN",
                "cn-beijing cn-chengdu cn-fuzhou cn-guangzhou cn-hangzhou cn-heyuan cn-huhehaote cn-nanjing \
                 cn-qingdao cn-shanghai cn-shenzhen cn-wuhan-lr cn-wulanchabu cn-zhangjiakou cn-zhongwei",
            ),
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

/// All regions, grouped by vendor.
pub fn places() -> impl Iterator<Item = Place> {
    REGIONS.iter().flat_map(|&(vendor_id, countries)| {
        countries.iter().flat_map(move |&(country, regions)| {
            regions.split_ascii_whitespace().map(move |region| Place { vendor_id, region, country })
        })
    })
}

/// Regions with this name at all vendors. `vendor~region` matches only the region of that vendor.
pub fn in_region(region: &str) -> impl Iterator<Item = Place> {
    let (vendor, name) = region.split_once('~').map_or((None, region), |(vendor, name)| (Some(vendor), name));
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
        assert!(places().count() > 200, "the table is nearly empty");
        for place in places() {
            let continent = continent(place.country).unwrap_or_else(|| panic!("{place:?} has no country"));
            assert!(CONTINENTS.contains(&continent), "{place:?}");
        }
        for code in country_codes() {
            assert!(places().any(|place| place.country == code), "{code} has no region");
        }
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
