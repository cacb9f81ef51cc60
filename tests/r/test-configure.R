# Runs configure in a copy of the package, with only these programs and `programs` (scripts by name) in the path.
configure <- function(..., vendored = FALSE) {
  folder <- tempfile("package-")
  dir.create(file.path(folder, "src", "rust"), recursive = TRUE)
  dir.create(file.path(folder, "bin"))
  for (file in c("configure", "src/Makevars.in", "src/rust/Cargo.toml")) {
    file.copy(file.path(repository, "r", file), file.path(folder, file))
  }
  if (vendored) file.create(file.path(folder, "src/rust/vendor.tar.xz"))
  needed <- Sys.which(c("cut", "head", "sed", "sort", "uname"))
  programs <- list(...)
  for (name in setdiff(names(needed), names(programs))) file.symlink(needed[[name]], file.path(folder, "bin", name))
  for (name in names(programs)) {
    file <- file.path(folder, "bin", name)
    writeLines(c("#!/bin/sh", programs[[name]]), file)
    Sys.chmod(file, "0755")
  }
  line <- sprintf("cd %s && HOME=%s PATH=%s/bin ./configure 2>&1", folder, folder, folder)
  output <- suppressWarnings(system(line, intern = TRUE))
  makevars <- file.path(folder, "src", "Makevars")
  list(
    status = attr(output, "status"), output = paste(output, collapse = "\n"),
    makevars = if (file.exists(makevars)) paste(readLines(makevars), collapse = "\n")
  )
}

test_that("configure says which Rust is needed, and how to get it", {
  missing <- configure()
  expect_identical(missing$status, 1L)
  expect_match(missing$output, "`cargo` not found; this package needs Rust 1.", fixed = TRUE)
  expect_match(missing$output, "hint: install Rust with rustup", fixed = TRUE)

  old <- configure(cargo = "echo cargo 1.63.0", rustc = "echo 'rustc 1.63.0 (4b91a6ea7 2022-08-08)'")
  expect_identical(old$status, 1L)
  expect_match(old$output, "rustc` is Rust 1.63.0; this package needs Rust 1.", fixed = TRUE)
  expect_null(old$makevars)

  broken <- configure(cargo = "echo cargo 2.0.0", rustc = "echo 'error: no default toolchain' >&2; exit 1")
  expect_identical(broken$status, 1L)
  expect_match(broken$output, "no default toolchain.*`rustc` does not run")
})

test_that("the flags of the linker are those of the platform", {
  recent <- list(cargo = "echo cargo 1.1000.0", rustc = "echo rustc 1.1000.0")
  linux <- do.call(configure, c(recent, uname = "echo Linux"))
  expect_null(linux$status)
  expect_match(linux$makevars, "PKG_LIBS = .*--gc-sections")
  macos <- do.call(configure, c(recent, uname = "echo Darwin"))
  expect_match(macos$makevars, "PKG_LIBS = .*-framework IOKit")
  expect_no_match(macos$makevars, "gc-sections|exclude-libs|-ldl")
  expect_no_match(paste(linux$makevars, macos$makevars), "@[A-Z]+@")
})

test_that("a package with its crates builds offline, and one without them from the registry", {
  recent <- list(cargo = "echo cargo 1.1000.0", rustc = "echo rustc 1.1000.0", tar = "true")
  expect_match(do.call(configure, c(recent, vendored = TRUE))$makevars, "CARGO_HOME=.*/rust/cargo-home\" cargo --offline .* build ")
  expect_no_match(do.call(configure, recent)$makevars, "--offline|CARGO_HOME")

  recent$tar <- "echo 'tar: xz: Cannot exec' >&2; exit 2"
  packed <- do.call(configure, c(recent, vendored = TRUE))
  expect_identical(packed$status, 1L)
  expect_match(packed$output, "error: `xz` not found, which unpacks the crates", fixed = TRUE)
})
