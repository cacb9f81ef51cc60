/* Wine 8 has no bcryptprimitives.dll, of which Rust's standard library wants one function. */
int __stdcall SystemFunction036(void *buffer, unsigned long length);
__declspec(dllexport) int __stdcall ProcessPrng(unsigned char *buffer, unsigned long long length) { return SystemFunction036(buffer, (unsigned long)length); }
