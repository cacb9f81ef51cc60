# The R part of `generate`: R/extendr-wrappers.R from the built library, then man/ and NAMESPACE by roxygen2.
#
#   Rscript generate.R LIBRARY_DIR PACKAGE_DIR
arguments <- commandArgs(trailingOnly = TRUE)
library_folder <- arguments[[1]]
folder <- arguments[[2]]

native <- dyn.load(file.path(library_folder, "resource.tracker", "libs", "resource.tracker.so"))
wrappers <- .Call("wrap__make_resource_tracker_wrappers", TRUE, "resource.tracker", PACKAGE = native[["name"]])
# Of it only the functions: their documentation is in Rust, where it belongs, and NAMESPACE is written by roxygen2.
lines <- grep("^(#|NULL|$)", strsplit(wrappers, "\n")[[1]], value = TRUE, invert = TRUE)
header <- c("# Made by `make generate` from the functions in src/rust; do not edit.", "")
writeLines(c(header, lines), file.path(folder, "R", "extendr-wrappers.R"))

# The installed package is documented, so that nothing is built here.
.libPaths(c(library_folder, .libPaths()))
roxygen2::roxygenise(folder, load_code = roxygen2::load_installed)
