/* R calls this function when it loads the package; extendr registers the functions. */
void R_init_resource_tracker_extendr(void *dll);
void register_extendr_panic_hook(void);

void R_init_resource_tracker(void *dll)
{
    register_extendr_panic_hook(); /* keeps panics off R's console */
    R_init_resource_tracker_extendr(dll);
}
