#' Report as a self-contained HTML page
#'
#' `tracker$report()` returns a `Report`. `as.character()` returns the HTML text. A knitr document shows the page.
#'
#' @examples
#' tracker <- ResourceTracker$new(interval = 0.1, discover_cloud = FALSE)
#' tracker$wait_for_samples(2)
#' tracker$stop()
#' \donttest{
#' report <- tracker$report()
#' report$save(tempfile(fileext = ".html"))
#' if (interactive()) report$browse()
#' }
#' @export
Report <- R6Class("Report",
  cloneable = FALSE,
  public = list(
    #' @description Creates a report; use `tracker$report()` instead.
    #' @param html HTML text.
    initialize = function(html) private$html <- text(html, "html"),

    #' @description Writes the page to a file atomically.
    #' @param filepath Path of the file.
    #' @return The report, invisibly.
    save = function(filepath) {
      core(save_text(private$html, file_path(filepath, "filepath")))
      invisible(self)
    },

    #' @description Opens the page in the browser with [utils::browseURL()]. Its temporary file stays when R exits, since
    #'   the browser may read it later.
    #' @return The report, invisibly.
    browse = function() {
      # Beside `tempdir()`, which R removes on exit, in a folder that only its owner can read.
      folder <- tempfile("resource-tracker-", tmpdir = dirname(tempdir()))
      if (!dir.create(folder, showWarnings = FALSE, mode = "0700")) raise("io", sprintf("cannot create `%s`", folder))
      file <- file.path(folder, "report.html")
      self$save(file)
      utils::browseURL(paste0("file://", file))
      invisible(self)
    },

    #' @description Returns the HTML text.
    text = function() private$html,

    #' @description Prints one line about the report.
    #' @param ... Not used.
    print = function(...) {
      size <- format(structure(nchar(private$html, "bytes"), class = "object_size"), units = "auto")
      cat(sprintf("<Report> %s of HTML; $browse() opens it, $save(filepath) writes it to a file\n", size))
      invisible(self)
    }
  ),
  private = list(html = NULL)
)

#' @export
as.character.Report <- function(x, ...) x$text()

#' @exportS3Method knitr::knit_print
knit_print.Report <- function(x, ...) {
  # In a frame, so that the styles of page and document do not mix.
  page <- gsub("\"", "&quot;", gsub("&", "&amp;", x$text(), fixed = TRUE), fixed = TRUE)
  frame <- sprintf("<iframe srcdoc=\"%s\" width=\"100%%\" height=\"700\" frameborder=\"0\"></iframe>", page)
  knitr::asis_output(frame)
}
