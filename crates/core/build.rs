//! Compresses the tables of the catalogue in `data/`, which `market::catalog::embedded` includes in the program.

use flate2::Compression;
use flate2::write::DeflateEncoder;
use std::io::{Error, Write as _};
use std::path::PathBuf;

fn main() -> Result<(), Error> {
    let output = PathBuf::from(std::env::var_os("OUT_DIR").ok_or_else(|| Error::other("no OUT_DIR"))?);
    for name in ["servers.csv", "prices.csv"] {
        let path = PathBuf::from("data").join(name);
        println!("cargo::rerun-if-changed={}", path.display());
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(&std::fs::read(path)?)?;
        std::fs::write(output.join(format!("{name}.deflate")), encoder.finish()?)?;
    }
    Ok(())
}
