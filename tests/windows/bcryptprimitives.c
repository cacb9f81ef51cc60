/* Wine 8 has no bcryptprimitives.dll. Rust's standard library needs one function of it. */
int __stdcall SystemFunction036(void *buffer, unsigned long length);
__declspec(dllexport) int __stdcall ProcessPrng(unsigned char *buffer, unsigned long long length) { return SystemFunction036(buffer, (unsigned long)length); }
