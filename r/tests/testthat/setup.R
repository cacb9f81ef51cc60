# Tests use no network.
Sys.setenv(RESOURCE_TRACKER_OFFLINE = "1")
