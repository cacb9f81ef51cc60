# run.sh sets up the environment of these tests; they fail without it.

Sys.setenv(RESOURCE_TRACKER_OFFLINE = "1")
repository <- normalizePath("../..")
program <- Sys.getenv("RESOURCE_TRACKER")
stopifnot(file.exists(program), requireNamespace("resource.tracker"))

read_whole <- function(file) {
  text <- readChar(file, file.size(file), useBytes = TRUE)
  Encoding(text) <- "UTF-8"
  text
}

# Runs the command and returns its output.
command <- function(...) {
  output <- suppressWarnings(system2(program, shQuote(c(...)), stdout = TRUE, stderr = TRUE))
  if (!is.null(attr(output, "status"))) stop(paste(output, collapse = "\n"))
  output
}

# Reads a table from CSV text.
read_table <- function(lines) {
  frame <- utils::read.csv(text = lines, check.names = FALSE)
  frame[] <- lapply(frame, as.double)
  frame
}

# Converts timestamps to numbers, as in files.
plain_table <- function(frame) {
  frame[] <- lapply(frame, as.double)
  frame
}
