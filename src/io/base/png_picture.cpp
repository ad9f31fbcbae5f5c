#include <png.h>

#include <csetjmp>
#include <cstring>

#include "core/base/error.h"
#include "io/base/picture_decoders.h"
#include "io/base/picture_orientation.h"

namespace melete {

namespace {

// What libpng's functions share. It reports errors by a function that must not return: that jumps out of the
// functions below, in which nothing needs a destructor.
struct Reader {
  const char* next;
  size_t left;
  bool warned = false;
  char message[200] = "";
  png_structp png = nullptr;
  png_infop info = nullptr;

  explicit Reader(std::string_view bytes) : next(bytes.data()), left(bytes.size()) {}
  ~Reader() { png_destroy_read_struct(&png, &info, nullptr); }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;
};

void on_error(png_structp png, png_const_charp message) {
  auto* reader = static_cast<Reader*>(png_get_error_ptr(png));
  std::snprintf(reader->message, sizeof reader->message, "%s", message);
  png_longjmp(png, 1);
}

void on_warning(png_structp png, png_const_charp) {
  static_cast<Reader*>(png_get_error_ptr(png))->warned = true;
}

void on_read(png_structp png, png_bytep to, size_t size) {
  auto* reader = static_cast<Reader*>(png_get_io_ptr(png));
  if (size > reader->left) png_error(png, "the file ends too early");
  std::memcpy(to, reader->next, size);
  reader->next += size;
  reader->left -= size;
}

bool read_header(Reader& r) {
  if (setjmp(png_jmpbuf(r.png)) != 0) return false;
  png_set_read_fn(r.png, &r, on_read);
  png_set_crc_action(r.png, PNG_CRC_QUIET_USE, PNG_CRC_QUIET_USE);
  png_set_user_limits(r.png, kLargestPictureSide, kLargestPictureSide);
  png_read_info(r.png, r.info);
  return true;
}

// Everything becomes RGBA of 8 bits; of 16 bits the upper eight are taken. False: an error stopped it.
bool read_rows(Reader& r, png_bytep pixels, size_t row_bytes, png_uint_32 height) {
  if (setjmp(png_jmpbuf(r.png)) != 0) return false;
  png_set_expand(r.png);
  png_set_strip_16(r.png);
  png_set_gray_to_rgb(r.png);
  png_set_filler(r.png, 255, PNG_FILLER_AFTER);
  const int passes = png_set_interlace_handling(r.png);
  png_read_update_info(r.png, r.info);
  for (int pass = 0; pass < passes; ++pass)
    for (png_uint_32 y = 0; y < height; ++y) png_read_row(r.png, pixels + y * row_bytes, nullptr);
  return true;
}

// Chunks behind the pixels; an error in them harms nothing.
void read_end(Reader& r) {
  if (setjmp(png_jmpbuf(r.png)) != 0) return;
  png_read_end(r.png, r.info);
}

int orientation_of(Reader& r) {
  png_bytep block = nullptr;
  png_uint_32 size = 0;
  if (png_get_eXIf_1(r.png, r.info, &size, &block) == 0) return 1;
  return exif_orientation({reinterpret_cast<const char*>(block), size});
}

}  // namespace

DecodedPicture decode_png_picture(std::string_view bytes, const std::string& where, bool with_pixels) {
  Reader r(bytes);
  r.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &r, on_error, on_warning);
  require(r.png != nullptr, "[{}] libpng cannot be used", where);
  r.info = png_create_info_struct(r.png);
  require(r.info != nullptr && read_header(r), "[{}] damaged PNG picture: {}", where, r.message);
  const png_uint_32 width = png_get_image_width(r.png, r.info), height = png_get_image_height(r.png, r.info);
  check_picture_size(width, height, where);
  const auto type = png_get_color_type(r.png, r.info);
  DecodedPicture picture;
  picture.width = static_cast<int>(width);
  picture.height = static_cast<int>(height);
  picture.grey = (type & PNG_COLOR_MASK_COLOR) == 0;
  picture.transparent =
      (type & PNG_COLOR_MASK_ALPHA) != 0 || png_get_valid(r.png, r.info, PNG_INFO_tRNS) != 0;
  picture.orientation = orientation_of(r);
  if (!with_pixels) return picture;
  // A deflated byte holds at most about 1032, so that anything beyond it is a lie and no memory is given to
  // it.
  const uint64_t pixels = static_cast<uint64_t>(width) * height;
  require(pixels / 8 / 1100 <= bytes.size(), "[{}] damaged: {} bytes cannot hold {} x {} pixels", where,
          bytes.size(), width, height);
  picture.rgba.assign(static_cast<size_t>(pixels) * 4, 0);
  if (!picture.transparent)
    for (size_t i = 3; i < picture.rgba.size(); i += 4) picture.rgba[i] = 255;
  picture.damaged = !read_rows(r, picture.rgba.data(), static_cast<size_t>(width) * 4, height);
  if (!picture.damaged) {
    read_end(r);
    picture.orientation = orientation_of(r);  // it may stand at the end
  }
  return picture;
}

}  // namespace melete
