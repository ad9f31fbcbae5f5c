#include "systems/muse/muse.h"

#include <cmath>

#include "core/base/error.h"
#include "generate/product_precision.h"

namespace melete::muse {

namespace {

struct Grid {
  int64_t rows, columns, codebooks;
  int64_t tokens() const { return rows * columns * codebooks; }
};

Grid grid_of(const PictureStage& stage, const PictureRequest& request) {
  Grid grid{request.rows, request.columns, stage.vae->config().quantizer.codebooks};
  if (request.pictures.defined()) {
    const int64_t step = stage.vae->pixels_per_token();
    grid.rows = request.pictures.size(2) / step;
    grid.columns = request.pictures.size(3) / step;
  }
  const int64_t positions = stage.maskgit->config().transformer.positions;
  if (grid.rows == 0 && grid.columns == 0)
    grid.rows = grid.columns =
        static_cast<int64_t>(std::sqrt(static_cast<double>(positions / grid.codebooks)));
  require(grid.rows > 0 && grid.columns > 0 && grid.tokens() <= positions,
          "[muse] a grid of {} x {} x {} tokens does not fit into the {} that this model makes", grid.rows,
          grid.columns, grid.codebooks, positions);
  return grid;
}

MaskingStart start_of(PictureStage& stage, const PictureRequest& request, const Grid& grid) {
  MaskingStart start;
  const int64_t pictures = request.text.size(0);
  if (!request.pictures.defined()) {
    start.tokens = at::full({pictures, grid.tokens()}, stage.maskgit->transformer->mask_token(),
                            request.text.options().dtype(at::kLong));
    return start;
  }
  require(request.pictures.size(0) == pictures, "[muse] expected a picture for every text: {}, got {}",
          pictures, request.pictures.size(0));
  start.tokens = stage.vae->tokenize(request.pictures).flatten(1);
  if (request.kept.defined())
    start.kept = request.kept.unsqueeze(-1).expand({-1, -1, -1, grid.codebooks}).flatten(1);
  start.time = mask_time(request.decoding.schedule, request.strength);
  if (request.strength >= 1) start.time = 0;
  return start;
}

}  // namespace

PictureResult make_pictures(PictureStage& stage, const PictureRequest& request, Draws& draws,
                            const MaskingObserver& observer) {
  const at::NoGradGuard no_grad;
  const Grid grid = grid_of(stage, request);
  PictureResult result;
  at::Tensor condition;
  if (!stage.condition_vae.is_empty()) {
    require(request.smaller.defined(), "[muse] super-resolution needs the smaller picture");
    result.condition = stage.condition_vae->tokenize(request.smaller);
    condition = result.condition.flatten(1);
  }
  const MaskingStart start = start_of(stage, request, grid);
  at::Tensor tokens;
  {
    const ProductPrecision rounded(request.precision, request.text.device().type());
    GuidedMaskGit model(stage.maskgit, request.text, request.negative, condition, request.guidance);
    tokens = decode_masked(model, start, request.decoding, draws, observer);
  }
  result.ids = tokens.view({tokens.size(0), grid.rows, grid.columns, grid.codebooks});
  if (grid.codebooks == 1) result.ids = result.ids.squeeze(-1);
  result.pictures = stage.vae->decode_ids(result.ids);
  return result;
}

at::Tensor kept_tokens(const at::Tensor& mask, int64_t pixels_per_token) {
  require(mask.dim() == 3 && mask.size(1) % pixels_per_token == 0 && mask.size(2) % pixels_per_token == 0,
          "[muse] expected a mask [batch, height, width] of whole patches of {} pixels", pixels_per_token);
  return at::max_pool2d(mask.to(at::kFloat).unsqueeze(1), pixels_per_token).squeeze(1) < 0.5;
}

}  // namespace melete::muse
