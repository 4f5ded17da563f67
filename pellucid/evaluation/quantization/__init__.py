"""The quantization bill: what a model's quantized weights cost, in bytes, in error and in predictions."""
