#' A report: one self-contained HTML page
#'
#' What `tracker$report()` gives. `as.character()` gives the page's text; in a knitr document the report shows itself.
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
    #' @description A page; `tracker$report()` makes one.
    #' @param html Its text.
    initialize = function(html) private$html <- text(html, "html"),

    #' @description Writes the page to a file, whole or not at all.
    #' @param filepath Its path.
    #' @return The report, invisibly.
    save = function(filepath) {
      core(save_text(private$html, file_path(filepath, "filepath")))
      invisible(self)
    },

    #' @description Shows the page in the browser, by [utils::browseURL()].
    #' @return The report, invisibly.
    browse = function() {
      file <- tempfile("resource-tracker-", fileext = ".html")
      self$save(file)
      utils::browseURL(paste0("file://", file))
      invisible(self)
    },

    #' @description The page's text.
    text = function() private$html,

    #' @description One line about the report.
    #' @param ... Not used.
    print = function(...) {
      size <- format(structure(nchar(private$html, "bytes"), class = "object_size"), units = "auto")
      cat(sprintf("<Report> %s of HTML; see it by $browse(), keep it by $save(filepath)\n", size))
      invisible(self)
    }
  ),
  private = list(html = NULL)
)

#' @export
as.character.Report <- function(x, ...) x$text()

#' @exportS3Method knitr::knit_print
knit_print.Report <- function(x, ...) {
  # A page within a page: framed, so that neither's styles reach the other.
  page <- gsub("\"", "&quot;", gsub("&", "&amp;", x$text(), fixed = TRUE), fixed = TRUE)
  frame <- sprintf("<iframe srcdoc=\"%s\" width=\"100%%\" height=\"700\" frameborder=\"0\"></iframe>", page)
  knitr::asis_output(frame)
}
