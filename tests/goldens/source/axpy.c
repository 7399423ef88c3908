int axpy(void** args) {
  const float* restrict const p0 = args[0];
  float* restrict const p1 = args[1];
  for (int k0 = 0; k0 < 300; ++k0) {
    p1[k0] = p0[k0] * 2.0f + 1.0f;
  }
  return 0;
}
