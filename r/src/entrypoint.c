/* R finds its package's functions by this name; extendr registers them. */
void R_init_resource_tracker_extendr(void *dll);
void register_extendr_panic_hook(void);

void R_init_resource_tracker(void *dll)
{
    register_extendr_panic_hook(); /* nothing of ours is printed on R's console */
    R_init_resource_tracker_extendr(dll);
}
