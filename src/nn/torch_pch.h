// What: the parts of libtorch that nn and model compile against, precompiled once.
// Owner: nn; model reuses the compiled header.
// Thread: none.
// Invariant: single operators only (ATen/ops/...); torch/torch.h costs ten times the time of a translation unit.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/silu.h>
#include <c10/core/InferenceMode.h>
