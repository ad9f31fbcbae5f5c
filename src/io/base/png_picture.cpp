#include <png.h>

#include <csetjmp>
#include <cstring>

#include "core/base/error.h"
#include "io/base/picture_decoders.h"
#include "io/base/picture_orientation.h"

namespace melete {

namespace {

// What libpng's callbacks share. It reports errors by a function that must not return: that jumps out of
// push(), in which nothing needs a destructor.
struct Reader {
  png_structp png = nullptr;
  png_infop info = nullptr;
  char message[200] = "";
  bool has_header = false, complete = false;
  int type = 0;               // of colours, as stored
  bool has_holes = false;     // by a colour that is transparent
  size_t unread = 0;          // bytes that were left when the header was complete
  uint8_t* pixels = nullptr;  // [height, width, 4]
  size_t row_bytes = 0;

  Reader() = default;
  ~Reader() { png_destroy_read_struct(&png, &info, nullptr); }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;
};

Reader& reader_of(png_structp png) {
  return *static_cast<Reader*>(png_get_progressive_ptr(png));
}

void on_error(png_structp png, png_const_charp message) {
  auto* reader = static_cast<Reader*>(png_get_error_ptr(png));
  std::snprintf(reader->message, sizeof reader->message, "%s", message);
  png_longjmp(png, 1);
}

void on_warning(png_structp, png_const_charp) {}

// Everything becomes RGBA of 8 bits; of 16 bits the upper eight are taken. Then it waits for memory.
void on_header(png_structp png, png_infop info) {
  Reader& reader = reader_of(png);
  reader.has_header = true;
  reader.type = png_get_color_type(png, info);
  reader.has_holes = png_get_valid(png, info, PNG_INFO_tRNS) != 0;
  png_set_expand(png);
  png_set_strip_16(png);
  png_set_gray_to_rgb(png);
  png_set_filler(png, 255, PNG_FILLER_AFTER);
  png_set_interlace_handling(png);
  png_read_update_info(png, info);
  reader.unread = png_process_data_pause(png, 0);
}

void on_row(png_structp png, png_bytep row, png_uint_32 number, int) {
  Reader& reader = reader_of(png);
  if (row != nullptr) png_progressive_combine_row(png, reader.pixels + number * reader.row_bytes, row);
}

void on_end(png_structp png, png_infop) {
  reader_of(png).complete = true;
}

bool prepare(Reader& r) {
  r.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &r, on_error, on_warning);
  if (r.png == nullptr) return false;
  r.info = png_create_info_struct(r.png);
  if (r.info == nullptr) return false;
  png_set_crc_action(r.png, PNG_CRC_QUIET_USE, PNG_CRC_QUIET_USE);
  png_set_user_limits(r.png, kLargestPictureSide, kLargestPictureSide);
  png_set_progressive_read_fn(r.png, &r, on_header, on_row, on_end);
  return true;
}

// Every row that these bytes complete. False: an error stopped it.
bool push(Reader& r, std::string_view bytes) {
  if (setjmp(png_jmpbuf(r.png)) != 0) return false;
  png_process_data(r.png, r.info, reinterpret_cast<png_bytep>(const_cast<char*>(bytes.data())), bytes.size());
  return true;
}

int orientation_of(Reader& r) {
  png_bytep block = nullptr;
  png_uint_32 size = 0;
  if (png_get_eXIf_1(r.png, r.info, &size, &block) == 0) return 1;
  return exif_orientation({reinterpret_cast<const char*>(block), size});
}

}  // namespace

DecodedPicture decode_png_picture(std::string_view bytes, const std::string& where, bool with_pixels) {
  Reader r;
  require(prepare(r), "[{}] libpng cannot be used", where);
  push(r, bytes);
  require(r.has_header, "[{}] damaged PNG picture: {}", where,
          r.message[0] != '\0' ? r.message : "the file ends too early");
  const png_uint_32 width = png_get_image_width(r.png, r.info), height = png_get_image_height(r.png, r.info);
  check_picture_size(width, height, where);
  DecodedPicture picture;
  picture.width = static_cast<int>(width);
  picture.height = static_cast<int>(height);
  picture.grey = (r.type & PNG_COLOR_MASK_COLOR) == 0;
  picture.transparent = (r.type & PNG_COLOR_MASK_ALPHA) != 0 || r.has_holes;
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
  r.pixels = picture.rgba.data();
  r.row_bytes = static_cast<size_t>(width) * 4;
  push(r, bytes.substr(bytes.size() - r.unread));
  picture.damaged = !r.complete;
  picture.orientation = orientation_of(r);  // it may stand behind the pixels
  return picture;
}

}  // namespace melete
