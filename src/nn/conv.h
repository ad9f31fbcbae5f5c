// Causal convolutions over time.
//
// Activations are [batch, channels, time] kept channels-last in memory (that is, batch, time, channels): the
// layout in which oneDNN is fastest here, in which a strided or transposed convolution is a plain one over
// reshaped frames, and in which attention's [batch, time, channels] is a view.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <string>
#include <unordered_map>

#include "kernels/frame_conv.h"

namespace melete {

// x [batch, channels, time] with channels-last memory; a no-op when it is so already.
at::Tensor time_major(const at::Tensor& x);

// What layers over time remember of a sound that comes chunk by chunk, by layer. With it, a layer takes up
// where the chunk before ended; its first chunk begins as a whole sound does.
class FrameHistory {
 public:
  at::Tensor& of(const torch::nn::Module& layer) { return kept_[&layer]; }
  // A layer's weights as its kernel reads them: to arrange them costs more than a short chunk.
  at::Tensor& packed_weight_of(const torch::nn::Module& layer) { return packed_[&layer]; }

  int64_t frames = 0;  // that have come before this chunk

 private:
  std::unordered_map<const torch::nn::Module*, at::Tensor> kept_, packed_;
};

// Convolution that sees only the past. The receptive field is padded on the left.
struct CausalConv1dImpl : torch::nn::Module {
  CausalConv1dImpl(int64_t in, int64_t out, int64_t kernel, std::string pad_mode = "reflect",
                   int64_t stride = 1, int64_t dilation = 1);
  // [batch, in, time] -> [batch, out, time / stride]
  at::Tensor forward(const at::Tensor& x, Activation activation = Activation::none,
                     FrameHistory* history = nullptr);

  at::Tensor weight, bias;

 private:
  std::string pad_mode_;
  int64_t stride_, dilation_, padding_;
};
TORCH_MODULE(CausalConv1d);

// Transposed convolution, cut to `time * stride` frames. Computed in polyphase form: one plain convolution
// whose output channels are the `stride` phases (LibTorch's bf16 transposed convolution is wrong, and its
// fp32 one slow).
struct CausalConvTranspose1dImpl : torch::nn::Module {
  CausalConvTranspose1dImpl(int64_t in, int64_t out, int64_t kernel, int64_t stride);
  // [batch, in, time] -> [batch, out, time * stride]
  at::Tensor forward(const at::Tensor& x, FrameHistory* history = nullptr);

  at::Tensor weight, bias;  // weight [in, out, kernel], as in LibTorch

 private:
  int64_t stride_, taps_;  // taps: input frames that one output frame sees
};
TORCH_MODULE(CausalConvTranspose1d);

}  // namespace melete
