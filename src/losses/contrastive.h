// Contrastive losses over pairs: row i of `left` belongs to row i of `right` and to no other row. Several
// layers of pairs are as many losses, added up.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <string>

namespace melete {

class Schema;

// Unit vectors. With several processes each holds its own rows against the columns of all of them; the
// gradient of the columns is then a sum over processes.
struct ContrastRows {
  at::Tensor left, right;          // [layers, rows, dim] or [rows, dim]: of this process
  at::Tensor all_left, all_right;  // the same with the columns of all; undefined: there are no others
  int64_t first_row = 0;           // where this process's rows stand among all
};

// Each is the sum over this process's rows, divided by the number of columns: added up over processes it is
// the loss of the whole batch. scale and bias [layers, 1, 1].
// Cross entropy of the similarities, both ways; decoupled (Yeh et al. 2022) leaves a pair's own similarity
// out of its denominators.
at::Tensor softmax_contrast(const ContrastRows& pairs, const at::Tensor& scale, bool decoupled);
// Every pair for itself: the same or not (Zhai et al. 2023).
at::Tensor sigmoid_contrast(const ContrastRows& pairs, const at::Tensor& scale, const at::Tensor& bias);

struct ContrastConfig {
  std::string kind = "decoupled";  // softmax, decoupled, sigmoid
  double scale = 10;               // of the similarities at the start (one over the temperature)
  double bias = -10;               // sigmoid: added to them at the start
};
void describe(Schema& schema, ContrastConfig& config);

struct ContrastImpl : torch::nn::Module {
  explicit ContrastImpl(const ContrastConfig& config, int64_t layers = 1);
  at::Tensor forward(const ContrastRows& pairs);
  at::Tensor scale() const { return log_scale.exp(); }

  at::Tensor log_scale;  // [layers, 1, 1]
  at::Tensor bias;       // [layers, 1, 1], of the sigmoid one

 private:
  ContrastConfig config_;
};
TORCH_MODULE(Contrast);

// One head a layer, from pooled features to unit vectors, all in one product.
struct LayerHeadsImpl : torch::nn::Module {
  LayerHeadsImpl(int64_t layers, int64_t in, int64_t out);
  at::Tensor forward(const at::Tensor& pooled);  // [layers, rows, in] -> unit vectors [layers, rows, out]

  at::Tensor gain;    // [layers, 1, in], of the norm before
  at::Tensor weight;  // [layers, in, out]
  at::Tensor bias;    // [layers, 1, out]
};
TORCH_MODULE(LayerHeads);

// Contrast between layers of two towers (ViCHA's hierarchical loss): heads for each side, and their loss.
struct LayerContrastImpl : torch::nn::Module {
  LayerContrastImpl(const ContrastConfig& config, int64_t layers, int64_t left_dim, int64_t right_dim,
                    int64_t dim);

  LayerHeads left{nullptr}, right{nullptr};
  Contrast contrast{nullptr};
};
TORCH_MODULE(LayerContrast);

}  // namespace melete
