"""The decode step of a model as a few Triton kernels in one CUDA graph, without a host in its loop.

Everything here is imported only where a module on a GPU is decoded: `decoder.py` first, which says what a
model needs; the kernels, and Triton with them, when a decoder is made.
"""
